"""Speed and memory of Stompbox, beside other brokers on the same machine in the same run: `make bench`."""
