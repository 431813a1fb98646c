//! How the ranks of a job start and find each other.
