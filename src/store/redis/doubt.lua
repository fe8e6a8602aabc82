          local start, version, span, tolerance, process, granted
          start, version, span, tolerance, process, granted, position = struct.unpack('<I8I8I8I8I8I8', asks, position)
          local is_lost = ledger.doubt(start, version, span, tolerance, process, granted, born)
