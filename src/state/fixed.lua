-- The fixed window; see fixed.rs.
local earliest$, fits$, take$, settle$, ends$, clear$, write$
do
  local prefix = sub(arg, @terms, @terms + 11)
  local limit, window = unpack('<I4I7', arg, @terms + 1)
  local start, finish, count, last = 0, 0, 0, 0
  if raw ~= '' and not shape then
    if byte(raw, @value) == @kind then
      start, finish, count, last = unpack('<I7I7I4I7', raw, @value + 12)
    else
      shape = true
    end
  end

  local function free(at)
    if at >= finish then return limit end
    return count < limit and limit - count or 0
  end

  function earliest$(from, ahead, cost)
    local units, at = ahead + cost, from
    if at < start then at = start end
    while true do
      local finish = @aligned and at - at % window + window or at < finish and finish
      local is_late = finish and recorded(at) >= finish
      if not is_late or @aligned and at % window == 0 then
        local free = free(at)
        if units <= free then return at end
        if free == limit then
          local windows = (units - 1) / limit
          return at + span(windows - windows % 1, window + (@aligned and 0 or hold))
        end
        if units > limit then units = units - free end
      end
      at = finish or at
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
        if (@aligned and recorded >= start or recorded > start) and recorded <= last then
          count = count + difference
          if count < 0 then count = 0 end
          if count > 4294967295 then count = 4294967295 end
          if difference <= 0 and not @aligned and recorded + window == finish then
            finish = count == 0 and start or last + window
          end
        end
      end
    end

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
