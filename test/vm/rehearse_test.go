// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearse rehearses a live change of a published node. All of it comes back but what a
// script has written, which is named: pictures of a machine are equal where nothing was changed.
func TestLongRehearse(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edits(t, calm...)
	for _, role := range []string{"release", "operator"} {
		f.must(t, "keys", "generate", "keys/"+role)
	}
	f.build(t)
	f.publish(t)
	f.edit(t, "    net.ipv4.ip_forward: 0\n", "    net.ipv4.ip_forward: 1\n")
	f.edit(t, "  overrides:\n", "    20-left: {rerun_policy: once_successfully, data: \"#!/bin/sh\\necho left >/root/left\\n\"}\n  files:\n    /etc/motd.d/new: {content: hello}\n  overrides:\n")
	before := tries(t)
	out, err := f.Caisson(t.Context(), "rehearse", "site.yaml", "--node", "beta", "-o", "json", "--timeout", "2h",
		"--check", "cat /proc/sys/net/ipv4/ip_forward /etc/motd.d/new")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct {
		Passed                 bool
		Reason, Said, Happened string
		Left                   []struct{ Kind, Key string }
		Checks                 []struct{ Output string }
		Silent                 map[string]float64
		Fetched                int64
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	if !got.Passed || got.Said != "live" || got.Happened != "live" || got.Fetched == 0 || got.Silent["ping"] != 0 || got.Silent["tcp/22"] != 0 || len(got.Silent) < 2 {
		t.Errorf("%+v", got)
	}
	if len(got.Left) != 1 || got.Left[0].Kind != "file" || got.Left[0].Key != "/root/left" {
		t.Errorf("left %+v", got.Left)
	}
	if len(got.Checks) != 1 || got.Checks[0].Output != "1\nhello" {
		t.Errorf("checks %+v", got.Checks)
	}
	leftNothing(t, before)
}
