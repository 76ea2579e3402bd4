;; W5: asks for a table of 2^31 - 1 elements before it runs.
(table $table 0x7fffffff funcref)
