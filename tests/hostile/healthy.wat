;; Nothing wrong with it: shows that the prelude is an adapter, so that a refusal is the replaced
;; part's doing.
