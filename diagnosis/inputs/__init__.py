"""What a diagnosis reads: requests and server samples as columns, and checks of them."""
