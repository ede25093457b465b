"""What people and other programs are told: console, health page, the words of workers."""
