-- name: greeted :one
-- services: hello
-- params: name text
INSERT INTO greetings (name, times) VALUES (:name, 1) ON CONFLICT (name) DO UPDATE SET times = times + 1 RETURNING times;

-- name: others :many
-- services: hello
-- params: name text
SELECT name, times FROM greetings WHERE name <> :name ORDER BY times DESC, name LIMIT 10;
