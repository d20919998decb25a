// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/spec/site"
)

var at = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// asked is a list of machines whose questions have settled.
func asked(t *testing.T, file string, ask func(*List)) (found []Machine) {
	t.Helper()
	l, err := Open(file, func(m Machine) { found = append(found, m) })
	if err != nil {
		t.Fatal(err)
	}
	l.settle = time.Hour // the test settles
	ask(l)
	for key := range l.asking {
		l.settled(key)
	}
	return found
}

func ask(t *testing.T, l *List, from string, found bool, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		if err := l.Answered(from, "agent", "/v2/metal-a/node/manifests/"+tag, found, at); err != nil {
			t.Fatal(err)
		}
	}
}

const uuid = "11111111-2222-3333-4444-555555555555"

func TestList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unknown.json")
	found := asked(t, file, func(l *List) {
		ask(t, l, "192.0.2.1", false, "rack1", "uuid-"+uuid, "mac-525400123456", "mac-525400123456")
		ask(t, l, "192.0.2.2", false, "uuid-"+uuid) // which the site does not name
		ask(t, l, "192.0.2.2", true, "mac-525400000002")
		ask(t, l, "192.0.2.3", true, "known")
		_ = l.Answered("192.0.2.4", "agent", "/v2/metal-a/layer/manifests/7", false, at) // no node
		// A relay asks for all behind it: what it found and did not is not of one machine.
		for _, tag := range []string{"mac-525400000005", "mac-525400000006"} {
			_ = l.Answered("192.0.2.5", "caisson/1.0", "/v2/metal-a/node/manifests/"+tag, false, at)
		}
	})
	if len(found) != 1 || found[0].From != "192.0.2.1" {
		t.Fatalf("found %+v", found)
	}
	want := `- {name: rack1, match: {macs: ["52:54:00:12:34:56"], uuids: ["` + uuid + `"]}}`
	if got := found[0].Node(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	list, err := Read(file)
	if err != nil || len(list) != 1 || list[0].Node() != want || !list[0].First.Equal(at) {
		t.Errorf("%+v, %v", list, err)
	}
	// The next server goes on with it, says nothing twice, and forgets who is known now.
	if found := asked(t, file, func(l *List) {
		ask(t, l, "192.0.2.1", false, "rack1")
		ask(t, l, "192.0.2.1", true, "rack1")
	}); len(found) != 0 {
		t.Errorf("said again: %+v", found)
	}
	if list, err := Read(file); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestBounds: strangers fill the list with what they like.
func TestBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unknown.json")
	asked(t, file, func(l *List) {
		for i := range 2 * maxMachines {
			ask(t, l, fmt.Sprintf("192.0.2.%d", i), false, "a")
		}
		for i := range 100 {
			ask(t, l, "192.0.2.0", false, fmt.Sprintf("mac-5254000000%02x", i), fmt.Sprintf("n%d", i), "uuid-"+strings.Repeat("x", 36))
		}
	})
	list, err := Read(file)
	if err != nil || len(list) != maxMachines {
		t.Fatalf("%d machines, %v", len(list), err)
	}
	i := slices.IndexFunc(list, func(m Machine) bool { return m.From == "192.0.2.0" })
	if i < 0 || len(list[i].MACs) != maxNames || len(list[i].Names) != maxNames || len(list[i].UUIDs) != 0 {
		t.Errorf("%+v", list[i])
	}
	if err := os.WriteFile(file, []byte("no list"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, nil); err == nil {
		t.Error("a file that holds no list was read")
	}
}

// TestAStrangerFillsNothing: who asks under many names, or from many addresses or networks of his, loses
// his own entries, and the fifty machines of a new rack stay; their rows are those of a valid site.
func TestAStrangerFillsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unknown.json")
	asked(t, file, func(l *List) {
		for i := range 50 {
			ask(t, l, fmt.Sprintf("198.51.100.%d", i), false, fmt.Sprintf("mac-52540000aa%02x", i), fmt.Sprintf("uuid-%08x-2222-3333-4444-555555555555", i+1), []string{"null", "Rack_1", "7", fmt.Sprintf("rack-%d", i)}[i%4])
		}
		for i := range 3 * maxMachines {
			at := at.Add(time.Duration(i) * time.Second)
			for from, agent := range map[string]string{"192.0.2.1": fmt.Sprint(i), fmt.Sprintf("2001:db8::%x", i): "agent", fmt.Sprintf("2001:db8:1:%x::1", i): "agent"} {
				if err := l.Answered(from, agent, fmt.Sprintf("/v2/node/manifests/s-%d", i), false, at); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	list, err := Read(file)
	if err != nil || len(list) != maxMachines {
		t.Fatalf("%d machines, %v", len(list), err)
	}
	text, rows := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n", 0
	for _, m := range list {
		if strings.HasPrefix(m.From, "198.51.100.") {
			text, rows = text+m.Node()+"\n", rows+1
		}
	}
	if rows != 50 {
		t.Errorf("%d of 50 machines are left", rows)
	}
	if s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml"); r.Err() != nil || len(s.Nodes()) != rows {
		t.Errorf("%v in\n%s", r.Err(), text)
	}
}

// TestStolenList: who writes the list has no word of it in a row, or in a command.
func TestStolenList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "unknown.json")
	text := `[{"names": ["$(reboot)", "x\n- {name: evil}", "rack1"], "macs": ["\"]}}\n- {name: evil}", "; reboot", "52:54:00:12:34:56"], "uuids": ["` + uuid + `", "` + strings.ToUpper(uuid) + `x"]},
		{"names": null, "macs": ["--to=evil"]}` + strings.Repeat(`, {"names": ["a"]}`, 2*maxMachines) + "]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Read(file)
	if err != nil || len(list) != maxMachines {
		t.Fatalf("%d machines, %v", len(list), err)
	}
	i := slices.IndexFunc(list, func(m Machine) bool { return len(m.MACs) > 0 })
	if i < 0 || list[i].ID() != "52:54:00:12:34:56" || list[i].Node() != `- {name: rack1, match: {macs: ["52:54:00:12:34:56"], uuids: ["`+uuid+`"]}}` {
		t.Errorf("%+v", list[max(i, 0)])
	}
	if n := len(For(list, "rack1")); n != 1 {
		t.Errorf("%d machines may come", n)
	}
}

// TestSettles waits for the real timer.
func TestSettles(t *testing.T) {
	found := make(chan Machine)
	l, err := Open(filepath.Join(t.TempDir(), "unknown.json"), func(m Machine) { found <- m })
	if err != nil {
		t.Fatal(err)
	}
	l.settle = time.Millisecond
	ask(t, l, "192.0.2.1", false, "a")
	select {
	case <-found:
	case <-time.After(5 * time.Minute):
		t.Error("nobody was told")
	}
}
