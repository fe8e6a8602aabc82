-- GCRA, spacing and the leaky bucket; see gcra.rs.
local load$, earliest$, fits$, take$, settle$, ends$, clear$, write$
do
  local prefix = sub(head, @terms, @terms + 11)
  local burst, interval = unpack('<I4I7', head, @terms + 1)
  local tolerance = span(burst, interval)
  if tolerance > common.memory then common.memory = tolerance end
  -- The theoretical arrival time, at which all units are available again, and the latest recorded time.
  local due, last

  function load$()
    due, last = 0, 0
    if common.has_quota(@value, prefix) then due, last = unpack('<I7I7', raw, @value + 12) end
  end

  function earliest$(from, ahead, cost)
    local ready = due + span(ahead + cost, interval) - (@spaced and span(cost, interval) or tolerance)
    return ready > from and ready or from
  end

  function fits$(at, cost)
    local from = (at > arrives and at or arrives) + lateness
    if due > from then from = due end
    local each = span(cost, interval)
    local room = (at + (@spaced and each or tolerance) - from) / each
    if room < 1 then return 1 end
    return room - room % 1
  end

  function take$(_, recorded, units)
    if recorded > due then due = recorded end
    if recorded > last then last = recorded end
    due = due + span(units, interval)
  end

  if is_rare then
    function settle$(list)
      for i = 1, #list, 2 do
        local recorded, difference = list[i], list[i + 1]
        if difference > 0 then
          take$(nil, recorded, difference)
        elseif recorded <= last then
          local refund = span(-difference, interval) - (last - recorded)
          if refund > 0 then due = due - refund end
          if due < 0 then due = 0 end
        end
      end
    end

    function common.latest$() return last end

    function clear$()
      due, last = 0, 0
    end
  end

  -- When the counter expires, and when all units are available again.
  function ends$()
    return due > last and due or last, due
  end

  function write$()
    return pack('<c12I7I7', prefix, due, last), ''
  end
end

--@terms
local prefix$ = sub(head, @terms, @terms + 11)
local burst$, interval$ = unpack('<I4I7', head, @terms + 1)
local tolerance$ = @spaced and interval$ or span(burst$, interval$)

--@room
due$, last$ = due$ or 0, last$ or 0
local each$ = span(cost, interval$)
local ready = @spaced and due$ or due$ + each$ - tolerance$
if ready > now then departs, reset = ready, due$ end
local soonest$ = due$ > record and due$ or record
if requests > 1 and now + (@spaced and each$ or tolerance$) - soonest$ < requests * each$ then break end

--@record
due$ = soonest$ + span(units, interval$)
if record > last$ then last$ = record end
local room = (now + tolerance$ - due$) / interval$
if room < remaining then remaining = room end
if due$ > reset then reset = due$ end
if last$ > finish then finish = last$ end
