"""Our commands and stock clients amid kills: README.md."""
