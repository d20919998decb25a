// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
)

// fillers are what boards of several makers have for an SMBIOS UUID as they leave the
// factory, beside zeros and ones alone. Many machines have the same one.
var fillers = []string{
	"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc", "12345678-1234-1234-1234-123456789abc",
	"fefefefe-fefe-fefe-fefe-fefefefefefe", "01234567-8910-1112-1314-151617181920",
	"00112233-4455-6677-8899-aabbccddeeff",
}

// MachineUUID checks the SMBIOS UUID of a machine, 36 characters in lower case: one that the firmware
// fills in where nobody gave it any names no machine.
func MachineUUID(id string) error {
	if strings.Trim(id, "0-") == "" || strings.Trim(id, "f-") == "" || slices.Contains(fillers, id) {
		return invalid("uuid", "match this machine by the MAC addresses of its cards", "the UUID %s is what firmware has where nobody set one: many machines have it", id)
	}
	return nil
}
