"""mpi-match"""
