"""Where cases are computed: this machine, dask, Slurm; `specs` says how they are named."""
