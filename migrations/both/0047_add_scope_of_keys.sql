-- The endpoints that a key may use: `inference` allows only calls and lists of models. Existing keys keep their rights.
ALTER TABLE api_keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'full' CHECK (scope IN ('inference', 'full'));
