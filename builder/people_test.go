// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"testing"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/spec"
)

// A base's account keeps its number, and the first user gets the next.
func TestReserve(t *testing.T) {
	base := accounts.PeopleIn("root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
	recipes := []spec.Recipe{{Accounts: spec.Accounts{Users: []spec.User{{Name: "alice"}}}}}
	rows, err := Settle(recipes, Reserve(nil, base))
	if err != nil || len(rows) != 2 || rows[0].UID != 1001 || rows[1].Name != "ubuntu" || rows[1].UID != 1000 {
		t.Errorf("got %+v, %v", rows, err)
	}
	known := []spec.Account{{Name: "bob", UID: 1000, GID: 1000, State: "active"}}
	if got := Reserve(known, base); len(got) != 1 {
		t.Errorf("the base took bob's number: %+v", got)
	}
	if got := Reserve(rows, base); len(got) != 2 {
		t.Errorf("a row twice: %+v", got)
	}
}
