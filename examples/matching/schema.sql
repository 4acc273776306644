-- The tables of the matching site, with a few people to begin with. Nobody can log in as one of these: they have no password.

CREATE TABLE people (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    password TEXT NOT NULL,
    about TEXT NOT NULL
);
CREATE TABLE interests (
    person INTEGER NOT NULL REFERENCES people,
    interest TEXT NOT NULL,
    PRIMARY KEY (interest, person)
) WITHOUT ROWID;
CREATE INDEX interests_of_person ON interests (person);

-- `token` is the SHA-256 of what the cookie says, so who reads this table cannot log in with it.
CREATE TABLE logins (
    token BLOB PRIMARY KEY,
    person INTEGER NOT NULL REFERENCES people,
    made INTEGER NOT NULL DEFAULT (unixepoch())
) WITHOUT ROWID;
CREATE VIEW viewers AS
SELECT token, person, name FROM logins JOIN people ON id = person WHERE made > unixepoch() - 30 * 86400;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    sender INTEGER NOT NULL REFERENCES people,
    receiver INTEGER NOT NULL REFERENCES people,
    text TEXT NOT NULL,
    sent INTEGER NOT NULL DEFAULT (unixepoch()),
    CONSTRAINT not_to_oneself CHECK (sender <> receiver)
);
CREATE INDEX messages_sent ON messages (sender);
CREATE INDEX messages_received ON messages (receiver);

-- What `statistics` may know of messages.
CREATE TABLE sent (day TEXT PRIMARY KEY, messages INTEGER NOT NULL) WITHOUT ROWID;

INSERT INTO people (name, password, about)
SELECT value ->> 0, '', value ->> 1 FROM json_each('[
    ["Ada", "Mathematician. I write programs for engines that nobody has built yet."],
    ["Basil", "Bread, long walks, and a very old bicycle."],
    ["Clara", "I sing alto, and I am looking for a choir and for company."],
    ["Dmitri", "Chemist by day, chess by night."],
    ["Edda", "Climbs everything that does not move."],
    ["Farid", "Gardener. My tomatoes are better than yours."],
    ["Greta", "Film at eleven, coffee at noon."],
    ["Hugo", "Three cats have agreed to let me stay."],
    ["Ines", "I repair radios, and listen to what they say."],
    ["Jonas", "Sails in summer, reads in winter."],
    ["Kaya", "Dancer. Ask me about tango."],
    ["Lev", "I cook for eight and eat for two."],
    ["Mira", "Astronomer, so I am up late anyway."],
    ["Nils", "Runs before breakfast, and regrets it after."],
    ["Olga", "Translator of poems from four languages into a fifth."],
    ["Pavel", "Builds furniture, and sometimes finishes it."],
    ["Quinn", "Board games, the longer the better."],
    ["Rosa", "Botanist with a weakness for mosses."],
    ["Sven", "Plays the double bass; owns a large car for that reason."],
    ["Tara", "I know every bridge of this city."],
    ["Umar", "Photographs doors."],
    ["Vera", "Beekeeper. Yes, they sting."],
    ["Wim", "Cycles to work and back, by way of the sea."],
    ["Yara", "Marine biologist, at home in cold water."]
]');
INSERT INTO interests (person, interest)
SELECT people.id, one.value FROM people JOIN json_each('{
    "Ada": ["chess", "music", "programming"], "Basil": ["baking", "cycling", "hiking"], "Clara": ["choir", "music", "theatre"],
    "Dmitri": ["chess", "cooking", "film"], "Edda": ["climbing", "hiking", "photography"], "Farid": ["cooking", "gardening", "hiking"],
    "Greta": ["coffee", "film", "music"], "Hugo": ["cats", "coffee", "reading"], "Ines": ["music", "programming", "radio"],
    "Jonas": ["reading", "sailing", "swimming"], "Kaya": ["dancing", "music", "theatre"], "Lev": ["baking", "cooking", "film"],
    "Mira": ["astronomy", "photography", "programming"], "Nils": ["cycling", "running", "swimming"],
    "Olga": ["cats", "poetry", "reading"], "Pavel": ["climbing", "music", "woodwork"], "Quinn": ["board games", "chess", "coffee"],
    "Rosa": ["gardening", "hiking", "photography"], "Sven": ["dancing", "jazz", "music"], "Tara": ["architecture", "hiking", "running"],
    "Umar": ["architecture", "film", "photography"], "Vera": ["baking", "gardening", "poetry"],
    "Wim": ["cycling", "photography", "swimming"], "Yara": ["sailing", "swimming", "photography"]
}') AS named ON named.key = people.name, json_each(named.value) AS one;
