-- What the services of the matching site may ask of its database.
--
-- What is private is asked for by `login`, the SHA-256 of the token in the viewer's cookie, and never by a name or number. So who
-- takes over `messages` reads the messages of those who come by, and of nobody else.

-- name: viewer :one
-- services: search, match, messages, profile
-- params: login blob
SELECT name FROM viewers WHERE token = :login;

-- name: people_by_interest :many
-- services: search
-- params: interest text, count int
-- max_rows: 20
SELECT name, about, (SELECT group_concat(interest, ',') FROM interests WHERE person = id) AS interests
FROM people WHERE :interest = '' OR id IN (SELECT person FROM interests WHERE interest = :interest)
ORDER BY id DESC LIMIT :count;

-- name: popular_interests :many
-- services: search, statistics
SELECT interest, count(*) AS people FROM interests GROUP BY interest ORDER BY people DESC, interest LIMIT 12;

-- name: matches :many
-- services: match
-- params: login blob
-- max_rows: 20
SELECT p.name, p.about, group_concat(theirs.interest, ',') AS interests,
    100 * count(*) / ((SELECT count(*) FROM interests WHERE person IN (v.person, p.id)) - count(*)) AS percent
FROM viewers AS v JOIN interests AS mine ON mine.person = v.person
JOIN interests AS theirs ON theirs.interest = mine.interest AND theirs.person <> v.person
JOIN people AS p ON p.id = theirs.person
WHERE v.token = :login GROUP BY p.id ORDER BY percent DESC, p.name LIMIT 20;

-- name: inbox :many
-- services: messages
-- params: login blob
-- max_rows: 100
SELECT p.name, m.text, m.sender = v.person AS mine, strftime('%Y-%m-%d %H:%M', m.sent, 'unixepoch') AS sent, max(m.id) AS newest
FROM viewers AS v JOIN messages AS m ON v.person IN (m.sender, m.receiver)
JOIN people AS p ON p.id = m.sender + m.receiver - v.person
WHERE v.token = :login GROUP BY p.id ORDER BY newest DESC LIMIT 100;

-- name: conversation :many
-- services: messages
-- params: login blob, name text
-- max_rows: 200
SELECT m.text, m.sender = v.person AS mine, strftime('%Y-%m-%d %H:%M', m.sent, 'unixepoch') AS sent
FROM viewers AS v JOIN people AS p ON p.name = :name
JOIN messages AS m ON (m.sender = v.person AND m.receiver = p.id) OR (m.sender = p.id AND m.receiver = v.person)
WHERE v.token = :login ORDER BY m.id DESC LIMIT 200;

-- name: add_message :exec
-- params: login blob, name text, text text
INSERT INTO messages (sender, receiver, text)
VALUES ((SELECT person FROM viewers WHERE token = :login), (SELECT id FROM people WHERE name = :name), :text);

-- name: count_message :exec
INSERT INTO sent (day, messages) VALUES (date('now'), 1) ON CONFLICT DO UPDATE SET messages = messages + 1;

-- A message to nobody breaks a rule of the table, and then it is not counted either.
-- transaction: send_message
-- services: messages
-- statements: add_message, count_message

-- name: profile :one
-- services: profile
-- params: name text
SELECT name, about, (SELECT group_concat(interest, ',') FROM interests WHERE person = id) AS interests
FROM people WHERE name = :name;

-- name: password_of :one
-- services: profile
-- params: name text
SELECT password FROM people WHERE name = :name;

-- name: add_login :exec
-- services: profile
-- params: login blob, name text
INSERT INTO logins (token, person) VALUES (:login, (SELECT id FROM people WHERE name = :name));

-- name: remove_login :exec
-- services: profile
-- params: login blob
DELETE FROM logins WHERE token = :login;

-- name: add_person :exec
-- services: profile
-- params: name text, password text, about text
INSERT INTO people (name, password, about) VALUES (:name, :password, :about);

-- name: add_interests :exec
-- services: profile
-- params: login blob, interests text
INSERT INTO interests (person, interest) SELECT person, value FROM viewers, json_each(:interests) WHERE token = :login;

-- transaction: register
-- services: profile
-- statements: add_person, add_login, add_interests

-- name: set_about :exec
-- services: profile
-- params: login blob, about text
UPDATE people SET about = :about WHERE id = (SELECT person FROM viewers WHERE token = :login);

-- name: remove_interests :exec
-- services: profile
-- params: login blob
DELETE FROM interests WHERE person = (SELECT person FROM viewers WHERE token = :login);

-- transaction: change_profile
-- services: profile
-- statements: set_about, remove_interests, add_interests

-- name: totals :one
-- services: statistics
SELECT (SELECT count(*) FROM people) AS people, (SELECT count(DISTINCT interest) FROM interests) AS interests,
    (SELECT coalesce(sum(messages), 0) FROM sent) AS messages;

-- name: sent_by_day :many
-- services: statistics
SELECT day, messages FROM sent ORDER BY day DESC LIMIT 14;
