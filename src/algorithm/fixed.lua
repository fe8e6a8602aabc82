-- The fixed window; see fixed.rs.
local load$, earliest$, fits$, take$, settle$, ends$, clear$, write$
do
  local prefix = sub(head, @terms, @terms + 11)
  local limit, window = unpack('<I4I7', head, @terms + 1)
  if window > common.memory then common.memory = window end
  -- The window that counts, its units, and the latest recorded time in it. An unaligned one begins with a departure.
  local start, finish, count, last

  function load$()
    start, finish, count, last = 0, 0, 0, 0
    if common.has_quota(@value, prefix) then start, finish, count, last = unpack('<I7I7I4I7', raw, @value + 12) end
  end

  local function free(at)
    if at >= finish then return limit end
    return count < limit and limit - count or 0
  end

  -- The first time at which a request that departs then may be too late for its window.
  local function closes(at)
    if @aligned then return at - at % window + window end
    return at < finish and start + window
  end

  function earliest$(from, ahead, cost)
    local units, at = ahead + cost, from
    if at < start then at = start end
    while true do
      local close = closes(at)
      if close and (at > arrives and at or arrives) + lateness >= close and not (@aligned and at % window == 0) then
        at = @aligned and close or finish
      else
        local free = free(at)
        if units <= free then return at end
        if free == limit then
          local rounds = (units - 1) / limit
          rounds = rounds - rounds % 1
          if @aligned then return at - at % window + span(rounds, window) end
          return at + span(rounds, window + lateness)
        end
        if units > limit then units = units - free end
        at = finish
      end
    end
  end

  function fits$(at, cost)
    local count = free(at) / cost
    return count - count % 1
  end

  function take$(at, recorded, units)
    if (@aligned and recorded or at) < finish then
      count = count + units
      if recorded > last then last = recorded end
      return
    end
    start = @aligned and recorded - recorded % window or at
    finish = (@aligned and start or recorded) + window
    count, last = units, recorded
  end

  if is_rare then
    function settle$(list)
      for i = 1, #list, 2 do
        local recorded, difference = list[i], list[i + 1]
        local in_window = @aligned and recorded >= start or recorded > start
        if difference > 0 and in_window then
          take$(recorded, recorded, difference)
          if count > 4294967295 then count = 4294967295 end
        elseif in_window and recorded <= last then
          count = count + difference
          if count < 0 then count = 0 end
          if not @aligned then
            if count == 0 then
              finish = start
            elseif recorded + window == finish then
              finish = last + window
            end
          end
        end
      end
    end

    function common.latest$() return last end

    function clear$()
      start, finish, count, last = 0, 0, 0, 0
    end
  end

  -- When the counter expires, and when all units are available again.
  function ends$()
    return finish, count > 0 and finish or 0
  end

  function write$()
    return pack('<c12I7I7I4I7', prefix, start, finish, count, last), ''
  end
end

--@terms
local prefix$ = sub(head, @terms, @terms + 11)
local limit$, window$ = unpack('<I4I7', head, @terms + 1)

--@room
if not start$ then start$, finish$, count$, last$ = 0, 0, 0, 0 end
if now < start$ then break end
local close = @aligned and now - now % window$ + window$ or start$ + window$
if (@aligned or now < finish$) and record >= close and not (@aligned and now % window$ == 0) then break end
if now < finish$ and count$ == limit$ then
  departs, reset = finish$, finish$
elseif (now < finish$ and count$ or 0) + units > limit$ then
  break
end

--@record
if (@aligned and record or now) < finish$ then
  count$ = count$ + units
  if record > last$ then last$ = record end
else
  start$ = @aligned and record - record % window$ or now
  finish$ = (@aligned and start$ or record) + window$
  count$, last$ = units, record
end
local room = limit$ - (now < finish$ and count$ or 0)
if now < start$ or not @aligned and record >= start$ + window$ then room = 0 end
if room < remaining then remaining = room end
if finish$ > reset then reset = finish$ end
