// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

const fleetUnit = "../caisson-fleet.service"

// TestFleetUnit lets systemd read the unit of the fleet's service, and judge how it is
// confined: what stays open is what a service on the network does.
func TestFleetUnit(t *testing.T) {
	require.Tool(t, "systemd-analyze")
	text, err := os.ReadFile(fleetUnit)
	if err != nil {
		t.Fatal(err)
	}
	// What verify would miss on this machine is not what is tested.
	installed := strings.NewReplacer("/usr/bin/caisson ", "/bin/true ", "Documentation=man:caisson-fleet-serve(1)\n", "").Replace(string(text))
	name := filepath.Join(t.TempDir(), "caisson-fleet.service")
	if err := os.WriteFile(name, []byte(installed), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", name).CombinedOutput(); err != nil || strings.Contains(string(out), "caisson-fleet") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--json=short", "--no-pager", fleetUnit).CombinedOutput()
	if err != nil {
		require.Missing(t, "tools", "systemd-analyze security --offline: "+string(out))
	}
	var findings []struct {
		Name     string `json:"name"`
		Exposure string `json:"exposure"`
	}
	if err := json.Unmarshal(out, &findings); err != nil || len(findings) < 50 {
		t.Fatalf("%v\n%s", err, out)
	}
	open := map[string]bool{
		"PrivateNetwork=": true, "IPAddressDeny=": true, // nodes are anywhere
		"RestrictAddressFamilies=~AF_(INET|INET6)": true, "RestrictAddressFamilies=~AF_UNIX": true, // PostgreSQL and the journal
		"RootDirectory=/RootImage=": true, // it runs the program of this machine
		"DeviceAllow=":              true, // PrivateDevices= leaves null, zero and random
	}
	for _, f := range findings {
		if f.Exposure != "" && f.Exposure != "0.0" && !open[f.Name] {
			t.Errorf("%s is open (%s)", f.Name, f.Exposure)
		}
	}
}

// TestFleetUser makes the user that the unit runs as, in a tree of its own.
func TestFleetUser(t *testing.T) {
	require.Root(t)
	require.Tool(t, "systemd-sysusers")
	dir := t.TempDir()
	for _, name := range []string{"etc", "usr/lib/sysusers.d"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../caisson-fleet.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr/lib/sysusers.d/caisson-fleet.conf"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-sysusers", "--root="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	users, err := os.ReadFile(filepath.Join(dir, "etc/passwd"))
	unit, err2 := os.ReadFile(fleetUnit)
	if err != nil || err2 != nil || !strings.Contains(string(users), "caisson-fleet:x:") || !strings.Contains(string(unit), "\nUser=caisson-fleet\n") {
		t.Errorf("%v, %v: %q", err, err2, users)
	}
}
