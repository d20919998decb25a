// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/itemtest"
)

func TestManager(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const unit = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/sh -c "
	for name, text := range map[string]string{
		"load@.service": unit + "'echo %i >>/run/loaded'\n", "fails.service": unit + "'exit 3'\n",
	} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Manager{}
	for range 2 { // a job that is done can be asked for again
		if err := m.Do(t.Context(), "start", "load@br_netfilter.service"); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile("/run/loaded"); err != nil || string(data) != "br_netfilter\nbr_netfilter\n" {
		t.Errorf("it ran as %q, %v", data, err)
	}
	for unit, want := range map[string]string{"fails.service": "start fails.service: failed", "absent.service": "not found"} {
		if err := m.Do(t.Context(), "start", unit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", unit, err)
		}
	}
	if err := m.Do(t.Context(), "reload-everything", "load@x.service"); err == nil {
		t.Error("a job that there is not was done")
	}
}
