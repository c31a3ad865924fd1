"""The tests in virtual machines, and what makes and runs one."""
