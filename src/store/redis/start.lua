-- What all the scripts start with. Numbers are microseconds on the server's clock unless said otherwise.

-- Clocks may drift apart by one part in so many.
local DRIFT = 50000

-- The longest wait.
local HORIZON = 315360000000000

-- No record may lie further ahead than this: a wait, a window and some more.
local SANE = 946080000000000

-- The most records of a short log, and the size of a ring's header.
local SHORT, RING_HEADER = 16, 20

-- By what the first byte of a log is greater while anything stands aside: free slots, or what the upstream
-- has said; so that nobody looks for that in vain. Whoever writes it writes the mark in the same step.
local MARK = 64

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
