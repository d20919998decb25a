// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestNameStateDisk(t *testing.T) {
	const uuid = "0B0B0B0B-0000-4000-8000-000000000001"
	for _, test := range []struct {
		uuid string
		ask  *spec.NewStateDisk
		want string // of the error
	}{
		{"", nil, ""},
		{"", &spec.NewStateDisk{}, ""},
		{uuid, nil, ""},
		{"/dev/sda1", nil, "is not a partition UUID"},
		{uuid, &spec.NewStateDisk{}, "layer.stateDisk.create"},
	} {
		b := spec.Bootstrap{NewStateDisk: test.ask}
		err := NameStateDisk(&b, test.uuid)
		if test.want == "" && (err != nil || b.StateDisk != strings.ToLower(test.uuid)) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q beside %v: %q, %v; want %q", test.uuid, test.ask, b.StateDisk, err, test.want)
		}
	}
}
