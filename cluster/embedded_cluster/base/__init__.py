"""What every part needs: where files are, who runs, messages, locks, child processes and their ends. Imports none of the others."""
