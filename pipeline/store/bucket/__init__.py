"""A store in object storage: requests, the cache of files on this machine, claims of trainers."""
