;; W4: 20 MiB of memory, which is within the limit; a second memory of that size is not.
(memory $memory (export "memory") 320)
