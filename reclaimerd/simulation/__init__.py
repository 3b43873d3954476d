"""A simulated GPU host: the NVML calls we use and the driver's rules, over real processes."""
