// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"errors"
	"fmt"
)

// Caps bound how much a document may hold, so that a small text does not become
// large in memory: three bytes can be a struct of two hundred.
type Caps struct {
	Values  int // keys and values, at any depth
	Entries int // elements of any one list, or members of any one object
}

// ErrLarge is returned for a document beyond its caps.
var ErrLarge = errors.New("the document holds too much")

// Check counts what data holds and takes no memory for it. It returns [ErrLarge]
// for a document beyond the caps and nil for all else, also for what is not JSON:
// that is for Decode to say.
func (c Caps) Check(data []byte) error {
	values, depth := 1, 0
	var entries [maxDepth + 2]int // of the open lists and objects, by depth
	text, escaped := false, false
	for _, b := range data {
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == '[' || b == '{':
			if depth++; depth == len(entries) {
				return nil // Decode refuses the depth
			}
			values++
			entries[depth] = 1
		case (b == ']' || b == '}') && depth > 0:
			depth--
		case b == ',':
			values++
			entries[depth]++
		case b == ':':
			values++
		}
		if values > c.Values {
			return fmt.Errorf("%w: more than %d keys and values", ErrLarge, c.Values)
		}
		if entries[depth] > c.Entries {
			return fmt.Errorf("%w: more than %d elements in one list", ErrLarge, c.Entries)
		}
	}
	return nil
}
