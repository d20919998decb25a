// SPDX-License-Identifier: Apache-2.0

package inventory

import "testing"

func TestHardware(t *testing.T) {
	for mac, want := range map[string]bool{
		"3c:fd:fe:12:34:56": true, "b8:59:9f:00:00:01": true,
		"52:54:00:12:34:56": false, "42:01:0a:00:00:02": false, "02:00:00:00:00:01": false, // chosen locally
		"00:50:56:00:00:01": false, "00:15:5d:00:00:01": false, "08:00:27:00:00:01": false, "": false,
	} {
		if got := Hardware(mac); got != want {
			t.Errorf("%q: hardware %v, want %v", mac, got, want)
		}
	}
}
