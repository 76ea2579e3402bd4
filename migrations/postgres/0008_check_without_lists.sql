-- PostgreSQL compares with a list as fast as without one.
SELECT 1;
