"""What every room stands on: errors, results, progress, the machine, the caches, names, and what a
stranger's file may be."""
