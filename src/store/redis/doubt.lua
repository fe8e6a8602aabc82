          do
            local span
            span, position = struct.unpack('<I8', asks, position)
            local evidence = { struct.unpack('<' .. string.rep('I8', #quotas), asks, position) }
            position = table.remove(evidence)
            place = place + 1
            answer[place] = ledger.doubt(evidence, span, born) and 1 or 0
          end
