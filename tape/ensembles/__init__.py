"""``tape.ensemble``: a function of many parameter sets, in threads, in processes and on other machines."""
