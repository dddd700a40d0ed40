"""Packages that are not there."""

from pathlib import Path

# flash_attn for a CPU, which computes what flash-attn 2 does.
FLASH_ATTN_2 = Path(__file__).with_name("trainer") / "model/flash_attn_2.py"


def put(folder: Path, package: str, module: str, code: str, version: str = "2.8.0") -> None:
    """Lays a package with one module into a `folder` of the path, as an installer does."""
    facts = folder / f"{package.replace('-', '_')}-{version}.dist-info/METADATA"
    facts.parent.mkdir()
    facts.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text(code)
