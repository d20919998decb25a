// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/session"
)

// decided are the decisions that the nodes of this package's tests have made, by the name
// of the transition: some of each, with their facts.
var decided struct {
	sync.Mutex
	by map[string][]string
}

// ofEach is how many decisions of one name are written down.
const ofEach = 4

// traced has a node's decisions noted where they are to be written down.
func traced(o session.Options) session.Options {
	if os.Getenv("CAISSON_UPDATE") == "" {
		return o
	}
	o.Decided = func(f *decide.Facts, s decide.Step) {
		line, err := traceOf(f, s)
		if err != nil {
			panic(err)
		}
		decided.Lock()
		defer decided.Unlock()
		if list := decided.by[s.Name]; len(list) < ofEach && !slices.Contains(list, line) {
			if decided.by == nil {
				decided.by = map[string][]string{}
			}
			decided.by[s.Name] = append(list, line)
		}
	}
	return o
}

var identifiers = regexp.MustCompile(`sha256:[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}`)

// traceOf is a decision as a line of JSON, without what is zero, and with short names in
// place of digests and other identifiers.
func traceOf(f *decide.Facts, s decide.Step) (string, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	names := map[string]string{}
	data = identifiers.ReplaceAllFunc(data, func(id []byte) []byte {
		if names[string(id)] == "" {
			names[string(id)] = fmt.Sprintf("id-%c", 'a'+len(names))
		}
		return []byte(names[string(id)])
	})
	var facts map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&facts); err != nil {
		return "", err
	}
	line, err := json.Marshal(map[string]any{"step": s.Name, "facts": withoutZero(facts)})
	return string(line), err
}

func withoutZero(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(_ string, v any) bool {
		switch v := v.(type) {
		case map[string]any:
			return len(withoutZero(v)) == 0
		case json.Number:
			return v == "0"
		}
		return v == nil || v == false || v == ""
	})
	return m
}

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && len(decided.by) > 0 {
		var out bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(decided.by)) {
			for _, line := range decided.by[name] {
				fmt.Fprintln(&out, line)
			}
		}
		file := filepath.Join("..", "decide", "testdata", "traces.jsonl")
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
