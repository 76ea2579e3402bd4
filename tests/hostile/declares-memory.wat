;; W3: asks for 4 GiB of memory before it runs.
(memory $memory (export "memory") 65536)
