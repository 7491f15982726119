"""The class weights behind an output layer: scores, statistics and the best classes."""
