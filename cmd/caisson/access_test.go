// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestLoopback(t *testing.T) {
	for ref, want := range map[string]bool{
		"127.0.0.1:5000/x": true, "localhost/x": true, "[::1]:5000/x": true, "127.8.8.8": true,
		"registry.example.org/x": false, "10.0.0.1:5000/x": false, "localhost.example.org/x": false, "oci:./out": false,
	} {
		if got := loopback(ref); got != want {
			t.Errorf("loopback(%s) = %v, want %v", ref, got, want)
		}
	}
}
