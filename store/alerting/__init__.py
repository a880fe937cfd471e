"""Store the counts of requests per objective, the incidents, and the notifications."""
