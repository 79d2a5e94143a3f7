"""Data behind URLs: object storage, web servers, the Hub's datasets and buckets."""
