-- One operation on the state of each key; see state.rs, and codec.rs for the value.
--
-- KEYS: the values; under strict recovery, one value and the creation mark
-- ARGV[1]: the head of the calls, as below
--   <I7 B I7 I7 I7 I7 I2>  now (0: read the clock), operation, process, round trip, lateness (guard and buffer), horizon,
--     flags of the call (1: strict, 2: known, 4: clock was set, 8: lost calls or settlements, 16: a share, 32: reserves,
--     64: units moved, 128: releases places, 256: nudges arrive; with 1, 4, 8 or 128, it is the only call of the script)
--   each quota, as Counter::encode_terms; the names of the units, as in the value
-- ARGV[2] and so on: the rest of the call for each key
--   operations 0 (wait), 1 (try), 2 (peek): <I7 I7> number of the call, first lost call; <I4> cost in each unit; <B I2>
--     number of points, number of settlements; points <I7> arrival, sums; settlements <I7 I7 B> recorded,
--     difference + 2^32, unit; if strict, <I7 I7 I7 c8> quarantine, generation, version, server; if there is one, <I7 I2>
--     share, weight; if there are any, <I4> reserve of each level in millionths; <I7> units moved + 2^32, if there are any;
--     if a quota limits how many requests are in progress, <I4> places that this process holds
--   operations 3 (pause), 4 (allow), 5 (resume), 6 (reset): <I7 I7 I4 B> evidence, span, amount, unit
-- ARGV[3], ARGV[4]: of a call that releases places, the common channel of nudges, and the key as the limiter has it. The script
--   nudges processes itself, each in the channel ARGV[3]:NUMBER of its limiter. A nudge is <I7> the process, and the key
-- Returns: <I7> now; for each key, <B> status (0: done, 1: outdated, 2: change the value without the script, 3: unrecognized;
--   4: done, and later requests overtake others; 5: not done, call again; 8 more if the end of the answer is there, 16 more if
--   processes are to be nudged); if done, <I4> remaining of each unit; <I7 I7 B I2> reset, next call, number of expected
--   departures, number of grants;
--   if a quota limits how many requests are in progress, <I4 I4 I4> places held, by how many processes, reclaimed;
--   each expected <I7>; each grant <I7 I7 I4> at, recorded, requests;
--   if one of them is not 0, the end: <I7 I7 I7 I7> paused until, quarantined until, generation, version;
--   if there are any, the processes to nudge: <B> their number, <I7> each
-- Sums are <I7> for each unit. Times are in microseconds. A line with $ is repeated for each quota, and one with & for each unit;
-- script.rs explains the other marks. A `break` in the loop over the keys goes on with the next key.
-- What these are in Rust: `finish` is State::expires(); `points` and `totals` a Demand; `competing` the number of Others, with
-- `processes`, `deadlines`, `oldest` and `newest` of each; `own_bytes` an Announcement; `fair` the Tags, the Flow and the Reserves;
-- `paused`, `commanded` and `allowed&` the Commands; `generation` to `quarantined` the Generation. `at` is an offset in `raw`.
-- Offsets are in bytes, and begin with 1.
local spread, unpack, pack, call = unpack, struct.unpack, struct.pack, redis.call
local sub, byte, rep, concat = string.sub, string.byte, string.rep, table.concat
local head = ARGV[1]
local now, operation, process, round_trip, lateness, horizon, call_flags = unpack('<I7BI7I7I7I7I2', head)
-- True if the call names the time, by the clock of its host. If that is set back, time stands still: each write sets the expiry.
local is_given = now > 0
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- True if departures may have to be corrected or forgotten, which takes further functions.
local is_rare = operation > 2 or call_flags % 16 > 0
-- The names of the units, unless all quotas count requests.
local names = sub(head, @names)
local counted = names ~= '' and pack('<B', #names) .. names or ''
-- The level of this process, 0 for the highest; see LEVEL_BITS.
local level = (process % @SHARE - process % @LEVEL) / @LEVEL
-- True if its requests have a share; see LANE_BITS.
local has_share = process % @LANE >= @SHARE
-- A request departs no earlier than the answer arrives.
local arrives = now + round_trip
-- The key that is served, for the functions of the quotas. `raw` is its value, or with rings the part before the padding. With
-- `needs_transaction`, the call is left to transaction.rs: the value has other quotas, or a log is full.
local key, raw, needs_transaction
-- The bytes of all logs at the end of `raw`; those of the tail and the padding before rings; those up to the end of the rings.
local logs, tail_room, rings
-- The requests in progress; see concurrent.lua. This call grants nothing at `beyond`.
local beyond, places = now + (horizon > @LEAST_BEYOND and horizon or @LEAST_BEYOND) + 1, {} --places

local function span(count, interval)
  local span = count * interval
  return span < @LONGEST_SPAN and span or @LONGEST_SPAN
end

-- Variables in a table, as Lua limits the number of local ones:
--   work: the announcements that were read below. Other commands wait while this script runs, so the keys beyond 2,000 of them
--     are left to another call, but for the first
--   memory: how long departures count; has_short_window: true if some leave a window within the horizon
--   is_notified: true if nudges arrive; releases_places: true if this call releases places
--   has_lanes: true if an announcement that competes is in another lane than this one; in_lanes: the units ahead in all lanes of
--     a process, by its number without the lane; watched: that number of the process right ahead, or -1
--   moved: all rings, if the tail outgrows its room
--   front: the announcements of the first processes, for next.lua; forgotten_until: see `Commands` in state.rs
--   by key: the value, if plain.lua has read it already
local answers, common = {}, { work = 0, memory = 0, is_notified = call_flags >= 256, releases_places = call_flags % 256 >= 128 }
--@plain

-- True if the value has a quota of this kind at this offset, with the same window or interval. Its limit may differ.
function common.has_quota(at, terms)
  if raw == '' or needs_transaction then return false end
  needs_transaction = byte(raw, at) ~= byte(terms) or sub(raw, at + 5, at - 1 + #terms) ~= sub(terms, 6)
  return not needs_transaction
end

--@algorithms
-- Nothing departs earlier.
local suspended_until = 0
local <<allowed&, allowed_until&>> = <<0, 0>>

-- The first time at which a request may depart under all quotas jointly. Most calls ask again what was asked last.
local answer, asked_from, <<asked_ahead&, asked_cost&>>
local function earliest(from, <<ahead&>>, <<cost&>>)
  if from == asked_from and <<ahead& == asked_ahead& and cost& == asked_cost&| and >> then return answer end
  asked_from, <<asked_ahead&, asked_cost&>> = from, <<ahead&, cost&>>
  if from < suspended_until then from = suspended_until end
  for _ = 1, 64 do
    local next, time = from
    time = earliest$(from, ahead@unit, cost@unit) if time > next then next = time end --unit
    if cost@unit > 0 then time = earliest$(from, ahead@unit, cost@unit) if time > next then next = time end end --units
    if cost& > 0 and allowed& < ahead& + cost& and allowed_until& > next then next = allowed_until& end
    if next == from or <<ahead& > 0| or >> then
      answer = next
      return next
    end
    from = next
  end
  answer = from + @LONGEST_SPAN
  return answer
end

-- How many requests of this cost may depart together at a time at which one may.
local function fits(at, <<cost&>>)
  local least, count = 9007199254740992
  count = fits$(at, cost@unit) if count < least then least = count end --unit
  if cost@unit > 0 then count = fits$(at, cost@unit) if count < least then least = count end end --units
  if at < allowed_until& and cost& > 0 then count = allowed& / cost& least = count < least and count - count % 1 or least end
  return least
end

-- The cost of the first request of another process, whose costs are at this offset in the tail.
function common.first_cost(offset)
  local <<cost&>>, described = unpack('<@costsB', raw, offset)
  if <<cost& == 0| and >> then
    <<cost&>> = unpack('<@sums', raw, described > 1 and offset + @detail + 7 or offset - @demand + 14)
  end
  return <<cost&>>
end

-- When the last request arrived of those that cost so much in all units together, by the points of a demand and their sums.
function common.arrival_of(points, totals, unit)
  local i = 1
  while totals[i + 1] and totals[i] < unit do i = i + 1 end
  if i == 1 then return points[1] end
  local index = (i - 1) * @step + 1
  local arrival, before = points[index - @step], totals[i - 1]
  local behind = (points[index] - arrival) * (unit - before) / (totals[i] - before)
  return arrival + (behind - behind % 1)
end

-- Whether a process is ahead of another, by the first four numbers of each.
function common.is_before(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  if one[2] ~= other[2] then return one[2] < other[2] end
  if one[3] ~= other[3] then return one[3] < other[3] end
  return one[4] < other[4]
end

for nth = 1, (is_rare or common.releases_places) and 1 or #ARGV - 1 do repeat
if answers[nth] then break end
if common.work > 2000 then
  answers[nth] = '\5'
  break
end
local arg = ARGV[nth + 1]
key = KEYS[nth]
raw = common[key] or redis.pcall('GET', key) --whole
raw = common[key] or redis.pcall('GETRANGE', key, 0, @last) --ring
common[key] = nil
if type(raw) == 'table' then
  -- The value of another type is the matter of its key alone.
  if not string.find(raw.err, 'WRONGTYPE', 1, true) then return raw end
  answers[nth] = '\3'
  break
end
raw = raw or ''
logs, tail_room, needs_transaction, asked_from = 0, @TAIL_ROOM, false, nil
local flags, announced, size, expires = 0, 0, 0, 0
if raw ~= '' then
  local magic, quotas
  magic, flags, quotas, announced, expires, size, tail_room = unpack('<c3BBI2I7I4I4', #raw < 22 and rep('?', 22) or raw)
  if magic ~= 'tt\1' then
    answers[nth] = '\3'
    break
  end
  needs_transaction = quotas ~= @quotas or #raw < @head
  needs_transaction = needs_transaction or flags >= 32 --whole
  needs_transaction = needs_transaction or flags < 32 --ring
  flags = flags % 32
end
rings = @head + tail_room
load$()
if needs_transaction then
  answers[nth] = '\2'
  break
end
common.work = common.work + announced
local number, lost, count, settled, <<cost&>> = 0, 0, 0, 0, <<0>>
if operation < 3 then number, lost, <<cost&>>, count, settled = unpack('<I7I7@costsBI2', arg) end
local total_cost = <<cost&| + >>

if raw ~= '' then raw = #raw < @head + size and call('GETRANGE', key, 0, @head + size - 1) or sub(raw, 1, @head + size) end --ring
local at = @head + 1
-- A damaged value may end where numbers are expected: of commands, generation and former quotas, or of one announcement. So a
-- copy of it goes on with zeros. To copy a long value takes long.
local padded = #raw > 1024 and raw or raw .. rep('\0', 160)
-- Shares and reserves; `nil` if only the level and the arrival of requests count.
local fair
if call_flags % 128 >= 16 or flags >= 16 or has_share then fair = { has_tags = flags >= 16 } end
flags = flags % 16
do
  local stored = ''
  if flags >= 8 then
    stored = sub(raw, at, at + byte(padded, at))
    at, flags = at + #stored, flags - 8
  end
  if stored ~= counted and raw ~= '' then
    answers[nth] = '\2'
    break
  end
end
local has_commands = flags % 2 == 1
local paused, commanded = 0, 0
common.forgotten_until, common.has_lanes, common.watched = 0, false, -1
allowed&, allowed_until&, common.allowed_since& = 0, 0, 0
if has_commands then
  paused, <<allowed&, allowed_until&, common.allowed_since&>>, commanded, common.forgotten_until =
    unpack('<I7@allowedI7I7', padded, at)
  at = at + 21 + 18 * @units
end
local generation, version, written, server, quarantined = 0, 0, 0, '', 0
if flags % 4 >= 2 then
  generation, version, written, server, quarantined = unpack('<I7I7I7c8I7', padded, at)
  at = at + 36
end
-- The counters of former quotas, a value of their own, and behind it the departures that also count for them since it was written.
-- They are in use until `former_ends`. `common.more` has those that this call adds, and the number `before`.
local former, former_ends = '', 0
common.more = nil
if flags >= 4 then
  local bytes, ends, added = unpack('<I4I7I2', padded, at)
  bytes = bytes + 13 + added * (7 + @grant)
  former, former_ends = sub(raw, at, at + bytes - 1), ends
  at = at + bytes
  if operation < 2 then common.more = { before = added } end
  -- A transaction drops them. An allowance and a reset ask them for the latest departure.
  local asks = operation == 4 or operation == 6
  needs_transaction = operation < 2 and ends <= now or asks and ends > now or added > 400
end
if raw ~= '' and at + logs > #raw + 1 then --whole
if raw ~= '' and (at + logs > #raw + 1 or #raw ~= @head + size or size > tail_room) then --ring
  answers[nth] = '\3'
  break
end
if needs_transaction then
  answers[nth] = '\2'
  break
end

-- tags: the keys of the tags, in order; leads and weights: by these keys; flow: the number of the share of this process; own: the
-- key of its tag.
if fair then
  local tags, leads, weights, reserves = {}, {}, {}, {}
  if fair.has_tags then
    for i = 1, (unpack('<I2', raw, at)) do
      local number, weight, lead = unpack('<I7I2d', raw, at + 17 * i - 15)
      tags[i], leads[number], weights[number] = number, lead, weight
    end
    at = at + 2 + 17 * #tags
  end
  -- The optional numbers of a call are at its end. They are read backwards: `behind` is the offset behind the next one.
  local behind, flow, weight, moved = #arg + 1, 1, 1, 4294967296
  behind = behind - 4 --places
  if call_flags % 128 >= 64 then
    behind = behind - 7
    moved = unpack('<I7', arg, behind)
  end
  if call_flags % 64 >= 32 then
    behind = behind - 20
    -- `unpack` also returns the offset behind what it reads.
    reserves = { unpack('<I4I4I4I4I4', arg, behind) }
    reserves[6] = nil
  end
  if call_flags % 32 >= 16 then flow, weight = unpack('<I7I2', arg, behind - 9) end
  fair.tags, fair.leads, fair.weights, fair.reserves = tags, leads, weights, reserves
  fair.flow, fair.own, fair.moved = flow, flow * 8 + level, moved - 4294967296
  weights[fair.own] = weight > 0 and weight or weights[fair.own] or 1
end

-- True if past departures are forgotten: by a reset, or if they may have been lost. A loss begins a new generation, in
-- quarantine.
local forgets = false
if call_flags % 2 == 1 then
  local is_known = call_flags % 4 >= 2
  local quarantine, known, seen, origin = unpack('<I7I7I7c8', arg, @rest + count * @point + settled * 15)
  local ends = now + quarantine
  forgets = call_flags % 8 >= 4
  if generation == 0 then
    local mark = call('GET', KEYS[2]) or ''
    local since = sub(mark, -8) == origin and tonumber(sub(mark, 1, -9))
    if not since or since > now then
      since = now
      if operation < 2 then call('SET', KEYS[2], string.format('%.0f', now) .. origin, 'PX', 315360000000) end
    end
    if not is_known and not forgets then ends = since + quarantine end
    forgets = true
  elseif server ~= origin or written > now
    or is_known and (known > generation or known == generation and seen > version) then
    forgets = true
  elseif is_known and known < generation and generation + quarantine > quarantined then
    -- The process that began this generation may not have known of the loss, or of a longer window.
    quarantined = generation + quarantine
  end
  if forgets then
    clear$()
    expires = 0
    generation, version, written, server, quarantined = now, 0, 0, origin, ends > now and ends or 0
  end
end
forgets = forgets or operation == 6
if forgets or former_ends <= now then former, former_ends, common.more = '', 0, nil end

drop$() --window
if places.report(number, operation < 3 and unpack('<I4', arg, #arg - 3)) then answers[nth] = '\1' end --places
suspended_until = paused > quarantined and paused or quarantined

-- The points of this demand: arrival and sums in turn.
local points = {}
if count > 0 then points = { unpack('<' .. rep('I7@sums', count), arg, @rest) } end
-- The units of all kinds together.
local totals, total_granted = {}, 0
for i = 1, count do totals[i] = <<points[(i - 1) * @step + 1 + &]| + >> end

-- `competing` is the number of announcements of other processes whose demand counts: of this level and of higher ones, or with
-- shares or reserves, of all. Each has an entry in each table: the number of the process, its deadline, the arrival of its first
-- and of its last request, the offset of its costs in the tail, with shares or reserves its rival (the key of the tag of its
-- share, or of its level if that is another one), and the units that wait. If all its requests arrived behind those of this call,
-- it matters only with shares; without, the first announcement alone has an entry, as it matters whether there is one.
local competing, processes, deadlines, oldest, newest, costs_at, rivals, <<waiting&>> = 0
points.last = points[(count - 1) * @step + 1] or 0

-- True if requests that join later overtake some of other processes that wait.
local overtakes = false
-- True if the value stays as it is.
local is_same = true
-- The number of announcements to write, and the latest of their deadlines. The present ones are from `announced_at` to `at` in
-- the tail. `cuts` has those that are removed or replaced: the begin, the end, and the bytes that replace it.
local announced_after, cuts, announced_at, latest_deadline = 0, nil, at, 0
-- The announcement of this process, as it is written. A call that changes nothing leaves the grants that may be taken back.
local own_bytes = ''
-- The settlements of each unit, with the departures that are taken back: recorded times and differences in turn.
local corrections& = is_rare and {}
do
-- The announcements of the first four processes that are not overdue, in order, up to the first one of the fourth, whose level
-- and arrival are those of the front. Each has the level, 0 for the lead of a share, the arrival of its first request, the number
-- of the process, the deadline, and the offset of its costs.
local front, front_level, front_arrival = {}, 8
for _ = 1, announced do
  if at + 22 + @demand > #padded then padded = raw .. rep('\0', 128) end
  local who, deadline, bytes, called, first, last, <<units&>> = unpack('<I7I7I2I7I7I7@sums', padded, at)
  local costs, waits, is_other = at + 23 + @demand, bytes >= 32768, false
  bytes = bytes % 32768
  local next, is_idle = at + 16 + bytes, false
  if next > #raw + 1 - logs or waits and bytes < 7 + @demand + @detail then
    -- It is damaged.
    at = 0
    break
  end
  if deadline + @FORGOTTEN <= now then
    -- It is forgotten.
  elseif who == process and operation < 3 then
    if number ~= 0 and called >= number and operation < 2 then
      answers[nth] = '\1'
      break
    end
    if lost ~= 0 and called >= lost and not forgets and operation < 2 then
      local first = waits and costs + @detail + byte(padded, costs + @detail - 1) * @point or at + 23
      for offset = first, next - @grant - (has_share and 7 or 0), @grant do
        local time, <<given&>> = unpack('<I7@costs', padded, offset)
        local i& = #corrections&
        if given& > 0 then corrections&[i& + 1], corrections&[i& + 2] = time, -given& end
      end
    end
    is_idle = not waits and lost == 0 and settled == 0 and not forgets and bytes > (has_share and 14 or 7)
    if is_idle then own_bytes = sub(raw, at, next - 1) end
  else
    is_other, announced_after = true, announced_after + 1
    if fair and who % @LANE >= @SHARE then fair.has_shares = true end
    if deadline > latest_deadline then latest_deadline = deadline end
    if waits and deadline + @OVERDUE >= now then
      local their_level, rival = (who % @SHARE - who % @LEVEL) / @LEVEL
      local is_lower = their_level > level
      if deadline >= now and (their_level < front_level or their_level == front_level and first <= front_arrival) then
        local i, one = 1, { their_level, 0, first, who, deadline, costs }
        while front[i] and common.is_before(front[i], one) do i = i + 1 end
        table.insert(front, i, one)
        local previous, distinct = nil, 0
        for i = 1, front[4] and #front or 0 do
          local without_lane = front[i][4] - front[i][4] % @LANE
          if distinct == 4 then
            front[i] = nil
          elseif without_lane ~= previous then
            previous, distinct = without_lane, distinct + 1
            if distinct == 4 then front_level, front_arrival = front[i][1], front[i][3] end
          end
        end
      end
      -- Demand of a higher level is ahead, whenever it arrived. So may be that of another share.
      if their_level < level then first, last = 0, 0 end
      overtakes = overtakes or is_lower
      if fair then
        rival = their_level
        if rival == level then
          rival = (who % @LANE >= @SHARE and unpack('<I7', padded, next - 7) or 1) * 8 + level
          overtakes = overtakes or rival ~= fair.own
        elseif (fair.reserves[level + 1] or 0) > 0 then
          overtakes = true
        end
        if is_lower and (fair.reserves[rival + 1] or 0) == 0 then
          first, last = 9007199254740992, 9007199254740992
        elseif rival ~= fair.own then
          first, last = 0, 0
        end
      end
      if fair or not is_lower and (competing == 0 or first <= points.last) then
        if competing == 0 then
          processes, deadlines, oldest, newest, costs_at, rivals, <<waiting&>> = {}, {}, {}, {}, {}, {}, <<{}>>
        end
        if deadline < now then deadlines.are_past = true end
        if (who - process) % @LANE ~= 0 then common.has_lanes = true end
        competing = competing + 1
        rivals[competing] = rival
        processes[competing], deadlines[competing], oldest[competing] = who, deadline, first
        newest[competing], costs_at[competing], <<waiting&[competing]>> = last, costs, <<units&>>
      end
    end
  end
  if forgets or not is_other then
    is_same = is_same and is_idle
    local text = ''
    if is_other then
      -- Departures that were forgotten are not taken back.
      local points_end = waits and costs + @detail + byte(padded, costs + @detail - 1) * @point or at + 23
      local its_share = who % @LANE >= @SHARE and sub(raw, next - 7, next - 1) or ''
      bytes = points_end - at - 16 + #its_share + (waits and 32768 or 0)
      text = sub(raw, at, at + 13) .. pack('<I2', bytes) .. sub(raw, at + 16, points_end - 1) .. its_share
    end
    cuts = cuts or {}
    cuts[#cuts + 1] = { at, next, text }
  end
  at = next
end
common.front = front
end
if answers[nth] then break end
if at ~= #raw + 1 - logs and raw ~= '' then
  answers[nth] = '\3'
  break
end
-- The other announcements together; `nil` if the announcement of this process may replace a single one where it is.
local other_bytes
if not cuts or cuts[2] or cuts[1][3] ~= '' then
  local slices, from = {}, announced_at
  for i = 1, cuts and #cuts or 0 do
    slices[2 * i - 1], slices[2 * i], from = sub(raw, from, cuts[i][1] - 1), cuts[i][3], cuts[i][2]
  end
  slices[#slices + 1] = sub(raw, from, at - 1)
  other_bytes = concat(slices)
end
-- The processes to nudge, if next.lua ran.
local nudged

local ahead_of, ahead, due_requests
if competing > 0 then
--@demand
end

local grants, recorded_grants, expected, grant_count, expected_count = '', '', '', 0, 0
local next_call, <<granted&>> = 0, <<0>>
-- False if nothing is written: after a peek, or a command that is ignored.
local is_changed = operation ~= 2
if operation < 3 then
  -- The units that are given back, by their numbers, if there are any.
  local returned
  -- By how many units past departures cost more than before.
  local corrected = 0
  if is_rare then
    for i = 2, #corrections&, 2 do corrected = corrected + corrections&[i] end
    for i = 0, settled - 1 do
      local time, difference, unit = unpack('<I7I7B', arg, @rest + count * @point + i * 15)
      difference = difference - 4294967296
      corrected = corrected + difference
      if common.more and difference > 0 then
        common.more[#common.more + 1] = pack('<I7I7@costs', time, time, <<unit == & and difference or 0>>)
      end
      if difference < 0 then
        returned = returned or {}
        returned[unit] = (returned[unit] or 0) - difference
      end
      local i&, counts = #corrections&, difference > 0 or time > common.forgotten_until
      if unit == & and counts then corrections&[i& + 1], corrections&[i& + 2] = time, difference end
    end
    settle$(corrections@unit)
    -- Departures that were taken from what an upstream allows return to it.
    local function correct(allowed, finish, since, list)
      for i = 1, #list, 2 do
        local is_taken_from_it = list[i] > since and list[i] < finish
        if is_taken_from_it then allowed = math.min(4294967295, math.max(0, allowed - list[i + 1])) end
      end
      return allowed
    end
    allowed& = correct(allowed&, allowed_until&, common.allowed_since&, corrections&)
  end
  --@other_units
  if fair then
  --@order
  end
  if operation < 2 then
    local time, horizon_end, departed = now, now + horizon, 0
    local requests = count
    if total_cost > 0 and count > 0 then
      requests = totals[count] / total_cost
      requests = requests - requests % 1
    elseif count > 8 then
      requests = 8
    end
    if competing > 0 then requests = due_requests(requests, horizon_end) end
    local all_grants, all_recorded = {}, {}
    while departed < requests and grant_count < 256 do
      local each& = total_cost > 0 and cost& or points[departed * @step + 1 + &] - granted&
      time = earliest(time, <<0>>, <<each&>>)
      if time > horizon_end then break end
      local together, record = fits(time, <<each&>>), (time > arrives and time or arrives) + lateness
      if together < 1 then break end
      local alike = total_cost > 0 and requests - departed or 1
      if together > alike then together = alike end
      local units& = together * each&
      asked_from = nil
      take$(time, record, units@unit) --unit
      if units@unit > 0 then take$(time, record, units@unit) end --units
      if time < allowed_until& then allowed& = allowed& - units& end
      grant_count, departed = grant_count + 1, departed + together
      all_grants[grant_count] = pack('<I7I7I4', time, record, together)
      all_recorded[grant_count] = number ~= 0 and pack('<I7@costs', record, <<units&>>) or ''
      if common.more then common.more[#common.more + 1] = pack('<I7I7@costs', time, record, <<units&>>) end
      granted& = granted& + units&
      total_granted = <<granted&| + >>
    end
    grants, recorded_grants = concat(all_grants), concat(all_recorded)
  end
  -- The expected departures of the points that were not granted. The last one is also needed below.
  local departs = now
  for i = 1, count do
    local index = (i - 1) * @step + 1
    if totals[i] > total_granted then
      local before& = points[index + &] - granted&
      local each& = cost&
      if total_cost == 0 and i <= 8 then
        each& = points[index + &] - (i > 1 and points[index - @step + &] or 0)
      end
      -- Where it costs nothing or an unknown amount, it departs behind those before it.
      if each& == 0 and before& > 0 then each& = 1 end
      before& = before& - each&
      if competing > 0 then
        local <<others&>> = ahead(points[index], (<<before& + granted&| + >>))
        before& = before& + others&
      end
      departs = earliest(now, <<before&>>, <<each&>>)
      -- A request that waits for a place may get one at once.
      if operation == 0 and departs == beyond and places.look(before@place, each@place, now) then departs = now end --places
      expected, expected_count = expected .. pack('<I7', departs), expected_count + 1
    end
  end
  -- The points of the demand without what was granted.
  local left, described = points, 0
  if operation == 0 and count > 0 and total_granted < totals[count] then
    described = count
    if total_granted > 0 then
      local i, <<first&>> = 1, <<0>>
      while totals[i] <= total_granted do i = i + 1 end
      left = {}
      if total_cost > 0 or i > 8 then
        first& = cost&
        if total_cost == 0 and points[(i - 1) * @step + 1 + &] > granted& then first& = 1 end
        left = { common.arrival_of(points, totals, total_granted + (<<first&| + >>)), <<first&>> }
      end
      for i = i, count do
        if totals[i] > total_granted + (<<first&| + >>) then
          left[#left + 1] = points[(i - 1) * @step + 1]
          left[#left + 1] = points[(i - 1) * @step + 1 + &] - granted&
        end
      end
      described = #left / @step
    end
    local first = left[1]
    local each& = total_cost > 0 and cost& or left[1 + &]
    local <<before&>> = <<0>>
    if competing > 0 then <<before&>> = ahead(first, total_granted) end
    -- A process that waits calls at the latest after a third of the expected wait, or a second if that is longer.
    local silence = (departs - now) / 3
    silence = silence > @LONGEST_SILENCE and silence - silence % 1 or @LONGEST_SILENCE
    -- A process that ends takes all its lanes with it.
    if common.has_lanes then common.in_lanes& = {} end
    for j = 1, common.has_lanes and competing or 0 do
      local <<units&>> = ahead_of(j, first)
      local without_lane = processes[j] - processes[j] % @LANE
      common.in_lanes&[without_lane] = (common.in_lanes&[without_lane] or 0) + units&
    end
    if silence > @LONGEST_SILENCE and competing > 0 and not common.is_notified then
      -- If a process ahead is gone, or has cancelled its requests, no departure stays unused.
      local <<most&>> = <<0>>
      for j = 1, competing do
        local <<units&>> = ahead_of(j, first)
        if common.has_lanes then units& = common.in_lanes&[processes[j] - processes[j] % @LANE] end
        if units& > most& then most& = units& end
      end
      most& = before& > most& and before& - most& or 0
      local time = earliest(now, <<most&>>, <<each&>>) - (horizon - horizon % 2) / 2 - now
      if time < silence then silence = time > @LONGEST_SILENCE and time or @LONGEST_SILENCE end
    end
    next_call = earliest(now, <<before&>>, <<each&>>)
    if next_call == beyond then --places
      local before, time = 0, now + @LONGEST_SILENCE --places
      for j = 1, competing do before = before + (processes.is_ahead(j, first) and 1 or 0) end --places
      if before < 2 and not common.is_notified then time = now + @LOOK end --places
      next_call = places.look(before@place, each@place, time) or beyond - (horizon - horizon % 2) / 2 --places
    else --places
      next_call = next_call - (horizon - horizon % 2) / 2
    end --places
    if next_call > now + silence then next_call = now + silence end
    -- The first and the last of the processes right ahead, or if some are overdue, all.
    local nearest, from, to = 0, 1, 0
    for j = 1, competing do
      local time = oldest[j]
      if processes.is_ahead(j, first) and time >= nearest then
        if time > nearest then nearest, from = time, j end
        to = j
      end
    end
    if competing > 0 and (deadlines.are_past or common.has_lanes) then from, to = 1, competing end
    -- The process right ahead is watched in all its lanes.
    for j = 1, common.has_lanes and competing or 0 do
      if processes.is_ahead(j, first) and oldest[j] == nearest and processes[j] > common.watched then
        common.watched = processes[j] - processes[j] % @LANE
      end
    end
    for j = from, to do
      if processes.is_ahead(j, first)
        and (oldest[j] == nearest or deadlines[j] < now or processes[j] - processes[j] % @LANE == common.watched) then
        local watch = deadlines[j] + @WATCH_DELAY
        if now >= watch then
          watch = now + @OVERDUE / 5
          if watch > deadlines[j] + (@OVERDUE + 1) then watch = deadlines[j] + (@OVERDUE + 1) end
        end
        if watch < next_call then
          local <<others&>> = ahead_of(j, first)
          if common.has_lanes then others& = common.in_lanes&[processes[j] - processes[j] % @LANE] end
          others& = others& < before& and before& - others& or 0
          local time = earliest(now, <<others&>>, <<each&>>)
          if time < next_call then next_call = time > watch and time or watch end
        end
      end
    end
    if next_call < now + @SOONEST_CALL then next_call = now + @SOONEST_CALL end
  end
  local is_kept = described > 0 or recorded_grants ~= ''
  -- An earlier call that arrives late must not take places again, or departures for requests that are gone.
  if number ~= 0 and lost ~= 0 then is_kept = true end
  if number ~= 0 and places.released > 0 then is_kept = true end --places
  if is_kept then
    local late, text = 2 * round_trip, ''
    local stored = described > 1 and described or 0
    if stored > 0 then
      text = left == points and sub(arg, @rest, @rest + count * @point - 1)
        or pack('<' .. rep('I7@sums', stored), spread(left, 1, stored * @step))
    end
    text = text .. recorded_grants .. (has_share and pack('<I7', fair.flow) or '')
    local deadline = (next_call > now and next_call or now) + (late > @LATE and late or @LATE)
    is_same = false
    if described > 0 then
      local index = (described - 1) * @step + 1
      local units& = left[index + &]
      own_bytes = pack('<I7I7I2I7I7I7@sums@costsB', process, deadline, 32775 + @demand + @detail + #text, number, left[1],
        left[index], <<units&>>, <<cost&>>, stored) .. text
    else
      own_bytes = pack('<I7I7I2I7', process, deadline, 7 + #text, number) .. text
    end
  end
  if own_bytes ~= '' then
    local deadline = unpack('<I7', own_bytes, 8)
    announced_after = announced_after + 1
    if deadline > latest_deadline then latest_deadline = deadline end
  end
  is_same = false --places
  if fair then
    fair.charge(total_granted, corrected + fair.moved, described > 0)
    is_same = false
  end
  if operation < 2 and common.front[1] then
--@next
  end
else
  local evidence, length, units, unit = unpack('<I7I7I4B', arg)
  is_same = false
  -- An earlier response counts only if what it states lasts longer than the last pause.
  if operation < 5 and evidence < commanded and (paused <= commanded or length <= paused - commanded) then
    is_changed = false
  else
    if length > @LONGEST_SPAN then length = @LONGEST_SPAN end
    if operation == 3 then
      if now + length > paused then paused = now + length end
    elseif operation == 4 then
      local ends = now + length
      local is_stricter& = now >= allowed_until& or units < allowed& or units == allowed& and ends > allowed_until&
      local since = now
      if unit == @unit then since = math.max(since, common.latest$()) end
      since = math.min(since, now + @DEPART_WITHIN)
      if unit == @place then since = ends end --places
      if unit == & and is_stricter& then allowed&, allowed_until&, common.allowed_since& = units, ends, since end
    else
      paused = 0
      allowed&, allowed_until&, common.allowed_since& = 0, 0, 0
      if operation == 6 then
        if fair then fair.tags = {} end
        quarantined, common.forgotten_until = 0, math.max(common.forgotten_until, now)
        common.forgotten_until = math.max(common.forgotten_until, common.latest$())
        clear$()
      end
    end
    if operation ~= 4 then commanded = now end
    has_commands = true
  end
end

local reset, ends, resets = 0
local remaining& = 0
if operation > 2 then asked_from, suspended_until = nil, paused > quarantined and paused or quarantined end
if earliest(now, <<0>>, @one&) == now then remaining& = fits(now, @one&) end
local finish = latest_deadline > 0 and latest_deadline + @FORGOTTEN or 0
if former_ends > finish then finish = former_ends end
ends, resets = ends$() if resets > reset then reset = resets end if ends > finish then finish = ends end

if needs_transaction then
  answers[nth] = '\2'
  break
end
if is_changed then
  if generation > 0 then version, written = version + 1, now end
  if has_commands then
    if paused > finish then finish = paused end
    if allowed_until& > finish then finish = allowed_until& end
    if commanded + @REMEMBERED > finish then finish = commanded + @REMEMBERED end
    if common.forgotten_until + common.memory > finish then finish = common.forgotten_until + common.memory end
  end
  if generation > 0 and quarantined > finish then finish = quarantined end
  -- Processes that saw the state expect it, though departures were returned.
  if generation > 0 and expires > finish then finish = expires end
  if finish <= now then
    if raw ~= '' then call('DEL', key) end
  elseif not is_same or total_granted > 0 or settled > 0 or generation > 0 then
    local commands = has_commands
      and pack('<I7@allowedI7I7', paused, <<allowed&, allowed_until&, common.allowed_since&>>, commanded, common.forgotten_until)
      or ''
    local generation_bytes = generation > 0 and pack('<I7I7I7c8I7', generation, version, written, server, quarantined) or ''
    if common.more and common.more[1] then
      former = sub(former, 1, 11) .. pack('<I2', common.more.before + #common.more) .. sub(former, 14) .. concat(common.more)
    end
    flags = (has_commands and 1 or 0) + (generation > 0 and 2 or 0) + (former ~= '' and 4 or 0) + (names ~= '' and 8 or 0)
    local tag_bytes = ''
    if fair and (#fair.tags > 0 or fair.has_shares or own_bytes ~= '' and has_share) then
      local tags = { pack('<I2', #fair.tags) }
      for i, number in ipairs(fair.tags) do tags[i + 1] = pack('<I7I2d', number, fair.weights[number], fair.leads[number]) end
      tag_bytes, flags = concat(tags), flags + 16
    end
    if raw == '' then call('SETRANGE', key, rings - 1, '\0') end --ring
    local all_numbers, all_logs
    do
      local numbers$, log$ = write$()
      all_numbers, all_logs = @numbers, @logs
    end
    local prefix = counted .. commands .. generation_bytes .. former .. tag_bytes
    -- If nothing moves, only the head, what precedes the announcements, and the one of this process are written.
    local cut = not other_bytes and cuts[1]
    local is_in_place = cut and cut[2] - cut[1] == #own_bytes and #all_logs >= logs
    is_in_place = is_in_place and #prefix == announced_at - 1 - @head
    is_in_place = is_in_place and at - 1 + #all_logs <= @head + tail_room --ring
    if cut and not is_in_place then other_bytes = sub(raw, announced_at, cut[1] - 1) .. sub(raw, cut[2], at - 1) end
    size = #prefix + (other_bytes and #other_bytes + #own_bytes or at - announced_at) + #all_logs --ring
    common.moved = size > tail_room and call('GETRANGE', key, @head + tail_room, -1) --ring
    if common.moved then tail_room = size + @TAIL_ROOM end --ring
    -- The expiry is later than needed by a quarter, so that most writes do not set it.
    local sets_expiry = finish > expires or expires - finish > (finish - now) / 2
    if sets_expiry then expires = finish + (finish - now - (finish - now) % 4) / 4 end
    local front = pack('<c3BBI2I7', 'tt\1', flags, @quotas, announced_after, expires) .. all_numbers --whole
    local front = pack('<c3BBI2I7I4I4', 'tt\1', flags + 32, @quotas, announced_after, expires, size, tail_room) .. all_numbers --ring
    local lifetime = expires - now + 999
    lifetime = (lifetime - lifetime % 1000) / 1000 + 1
    if is_in_place then
      call('SETRANGE', key, 0, front .. prefix)
      call('SETRANGE', key, cut[1] - 1, own_bytes)
      if all_logs ~= '' then call('SETRANGE', key, at - 1, all_logs) end
      if sets_expiry or is_given then call('PEXPIRE', key, lifetime) end
    else
      local text = front .. prefix .. other_bytes .. own_bytes .. all_logs
      call('SET', key, text, 'PX', lifetime) --whole
      if common.moved then --ring
        call('SET', key, text .. rep('\0', tail_room - size) .. common.moved, 'PX', lifetime) --ring
      else --ring
        call('SETRANGE', key, 0, text) --ring
        if sets_expiry or is_given then call('PEXPIRE', key, lifetime) end --ring
      end --ring
    end
  end
end
if operation > 1 then generation, version = 0, 0 end
expected = places.occupancy() .. expected --places
local status, ending = overtakes and operation < 2 and 4 or 0, ''
if suspended_until > 0 or generation > 0 then
  status, ending = status + 8, pack('<I7I7I7I7', paused, quarantined, generation, version)
end
if nudged and nudged[1] then
  status, ending = status + 16, ending .. pack('<B' .. rep('I7', #nudged), #nudged, spread(nudged))
  for i = 1, common.releases_places and #nudged or 0 do
    local channel = string.format('%s:%.0f', ARGV[3], (nudged[i] - nudged[i] % @LANE) / @LANE)
    redis.pcall('PUBLISH', channel, pack('<I7', nudged[i]) .. ARGV[4])
  end
end
answers[nth] = pack('<B@costsI7I7BI2', status, <<remaining&>>, reset, next_call, expected_count, grant_count)
  .. expected .. grants .. ending
until true end
return pack('<I7', now) .. concat(answers)
