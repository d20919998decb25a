// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Time is a time that is kept as seconds since 1970, the zero one where it is not known.
func Time(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
