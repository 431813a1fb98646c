//! One-sided remote memory for the processes of one parallel job.
