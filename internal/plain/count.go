// SPDX-License-Identifier: Apache-2.0

package plain

import "fmt"

// Count writes how many there are of a thing whose plural ends in s: "1 node", "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
