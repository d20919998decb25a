// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"fmt"
	"strings"
)

// Count writes how many there are of a thing whose plural ends in s: "1 node", "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Some writes names, the first of very many and how many more there are.
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, " ")
	}
	return fmt.Sprintf("%s … and %d more", strings.Join(names[:most], " "), len(names)-most)
}
