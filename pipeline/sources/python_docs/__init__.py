"""Documentation that comes with Python and with the installed packages."""
