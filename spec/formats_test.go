// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/test/doctext"
	"github.com/caisson-os/caisson/test/golden"
)

// update has docs/formats written again, and golden documents that are not there.
var update = os.Getenv("CAISSON_UPDATE") != ""

// What a reader does with a key of a later release.
const (
	leavesOut  = "leaves it out and says so"
	refuses    = "refuses the document"
	passesOver = "leaves it out"
)

// documents are those of this package that others keep or are sent, and what a release does
// with a key of a later one: one of the words above, and why.
var documents = []struct {
	name       string
	doc        any
	older, why string
}{
	{"overlay", new(Overlay), leavesOut, "; who would sign or compare the document refuses it; `needs` names what an agent must not leave out"},
	{"fleet", new(Fleet), leavesOut, "; a publisher refuses to write the document again; `needs` names what a node must not leave out"},
	{"fleet-index", new(FleetIndex), refuses, ": whoever writes it again would lose it"},
	{"fleet-shard", new(FleetShard), refuses, ": whoever writes it again would lose it"},
	{"rollout-plan", new(RolloutPlan), refuses, ": a driver carries out all of a plan or nothing"},
	{"layer", new(Layer), leavesOut, ""},
	{"bootstrap", new(Bootstrap), leavesOut, "; `needs` names what it must not leave out, and with a key below `newStateDisk`, `network[].match` or `nodes[].match` that it does not know it erases no disk and matches no card"},
	{"keys", new(Keys), leavesOut, "; who would write the next version refuses; `needs` names what nobody must leave out"},
	{"rescue", new(Rescue), passesOver, "; `needs` names what nobody must leave out"},
	{"quote", new(Quote), passesOver, ": what counts of it the TPM has signed"},
	{"measured", new(Measured), refuses, ": what it does not know was measured, too"},
	{"report", new(Report), passesOver, ": nothing follows from a report"},
	{"hint", new(Hint), passesOver, ": nothing follows from a hint"},
	{"slot-request", new(SlotRequest), passesOver, ": a request is compared with what came beside it"},
	{"recipe", new(Recipe), leavesOut, ": it says to people what a layer was made of"},
}

// readers are those of the documents that are not read by [DecodeKnown] or [Decode] alone.
var readers = map[string]func(data []byte) (said []string, err error){
	"bootstrap":    func(data []byte) ([]string, error) { _, notes, err := DecodeBootstrap(data); return notes, err },
	"quote":        func(data []byte) ([]string, error) { _, err := DecodeQuote(data); return nil, err },
	"report":       func(data []byte) ([]string, error) { _, err := DecodeReport(data); return nil, err },
	"hint":         func(data []byte) ([]string, error) { _, err := DecodeHint(data); return nil, err },
	"slot-request": func(data []byte) ([]string, error) { _, err := DecodeSlotRequest(data); return nil, err },
}

// TestKeysOfALaterRelease: an unknown key at any depth of a golden document is left out or
// refused, as the page of the document says.
func TestKeysOfALaterRelease(t *testing.T) {
	// These have texts in the golden documents that their readers refuse.
	real := strings.NewReplacer(`"apiVersion":"a"`, `"apiVersion":"`+APIVersion+`"`, `"grade":"a"`, `"grade":"pinned"`, `"needs":["a"]`, `"needs":["`+BootNetworkFeature+`"]`)
	for _, d := range documents {
		golden, err := os.ReadFile(filepath.Join("testdata/golden", d.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		top := reflect.TypeOf(d.doc).Elem()
		text := strings.Replace(real.Replace(string(golden)), `"kind":"a"`, `"kind":"`+top.Name()+`"`, 1)
		of := func() any { return reflect.New(top).Interface() }
		read := readers[d.name]
		switch {
		case read != nil:
		case d.older == refuses:
			read = func(data []byte) ([]string, error) { return nil, Decode(data, of()) }
		default:
			read = func(data []byte) ([]string, error) { return DecodeKnown(data, of()) }
		}
		if said, err := read([]byte(text)); err != nil || said != nil {
			t.Fatalf("%s: %q, %v", d.name, said, err)
		}
		later := addLaterKey(t, text, top)
		if len(later) == 0 {
			t.Errorf("%s: the golden document has no object", d.name)
		}
		for _, text := range later {
			said, err := read([]byte(text))
			names := strings.Contains(strings.Join(said, " "), "laterKey")
			var hinted interface{ Hint() string }
			switch {
			case d.older == refuses:
				if err == nil || !strings.Contains(err.Error(), "laterKey") || !errors.As(err, &hinted) {
					t.Errorf("%s is not refused with a hint: %v\n%s", d.name, err, text)
				}
			case err != nil || d.older == leavesOut && !names:
				t.Errorf("%s: said %q, %v\n%s", d.name, said, err, text)
			}
		}
	}
}

// addLaterKey returns a document once for each of its objects, with an unknown key at the end
// of that object.
func addLaterKey(t *testing.T, text string, of reflect.Type) (later []string) {
	d := json.NewDecoder(strings.NewReader(text))
	next := func() json.Token {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	var value func(of reflect.Type)
	value = func(of reflect.Type) {
		of = keyed(of)
		switch open := next(); open {
		case json.Delim('{'):
			for d.More() {
				inner, key := of, next().(string)
				if of != nil && of.Kind() == reflect.Map {
					inner = of.Elem()
				} else if of != nil {
					inner = fieldsOf(of)[strings.ToLower(key)].typ
				}
				value(inner)
			}
			next()
			if at := d.InputOffset() - 1; of != nil && of.Kind() == reflect.Struct {
				later = append(later, text[:at]+`,"laterKey":{"a":[1]}`+text[at:])
			}
		case json.Delim('['):
			for d.More() {
				value(of.Elem())
			}
			next()
		}
	}
	value(of)
	return later
}

// reserved are keys that later releases give a meaning, and that nothing else may be called.
var reserved = []struct{ document, key, means string }{}

// TestGoldens: each document that a release wrote is read, and written byte-equal.
func TestGoldens(t *testing.T) {
	for _, d := range documents {
		file := filepath.Join("testdata/golden", d.name+".json")
		if update {
			doc := reflect.New(reflect.TypeOf(d.doc).Elem())
			golden.Fill(doc.Elem())
			data, err := Encode(doc.Interface())
			if err == nil {
				err = golden.WriteNew(file, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc := reflect.New(reflect.TypeOf(d.doc).Elem()).Interface()
		if unknown, err := DecodeKnown(data, doc); err != nil || unknown != nil {
			t.Errorf("%s: unknown %q, %v", file, unknown, err)
			continue
		}
		if again, err := Encode(doc); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s is written otherwise: %v\n%s", file, err, gocmp.Diff(string(data), string(again)))
		}
	}
}

// keysFile lists the key paths of the documents as 0.9.0 has them.
const keysFile = "testdata/golden/keys.txt"

// mayBeLeftOut classifies a key that readers of earlier releases do without.
const mayBeLeftOut = "may be left out by older readers"

// laterKey is a key path that came after 0.9.0.
type laterKey struct {
	since string // the release
	class string // its row of features, which has older readers refuse the document, or mayBeLeftOut
}

// laterFile lists these key paths, each with its release and class, as they were first written.
const laterFile = "testdata/golden/later.txt"

// laterDocuments came after 0.9.0 as a whole: rescue with the feature of that name, keys with
// key-chain.
var laterDocuments = map[string]laterKey{"quote": {"0.10.0", mayBeLeftOut}, "measured": {"0.10.0", mayBeLeftOut},
	"rescue": {"0.10.0", mayBeLeftOut}, "keys": {"0.10.0", mayBeLeftOut}}

// sinceNote begins the comment of a field whose key came after 0.9.0, by itself or with a feature,
// and may say why older readers do without it. All below such a key came with it, but what names a
// later release.
var sinceNote = regexp.MustCompile(`^since (\d+\.\d+\.\d+)(?: with ([a-z-]+))?(?:, as [^:]+)?(?:: |$)`)

// laterKeys are the later keys of all documents, as in "overlay items.files[].acl".
func laterKeys(notes map[string]string) map[string]laterKey {
	later := map[string]laterKey{}
	for _, d := range documents {
		addLater(later, notes, d.name+" ", reflect.TypeOf(d.doc).Elem(), laterDocuments[d.name])
	}
	return later
}

func addLater(later map[string]laterKey, notes map[string]string, path string, t reflect.Type, all laterKey) {
	for f := range visible(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := all
		if said := sinceNote.FindStringSubmatch(notes[owner(t, f)+"."+f.Name]); said != nil && (of.since == "" || plain.Natural(said[1], of.since) > 0) {
			of = laterKey{said[1], cmp.Or(said[2], mayBeLeftOut)}
		}
		if name == "-" {
			continue
		}
		if of.since != "" {
			later[path+name] = of
		}
		if at, inner := pathTo(path+name, f.Type); inner != nil {
			addLater(later, notes, at+".", inner, of)
		}
	}
}

// Bound limits a number, or the length of a text or a list.
type Bound struct {
	Least, Most int64
	Of          string // what is counted of a text or a list; "" for a number
	Unset       bool   // 0 is possible, too
}

func (b Bound) String() string {
	text := fmt.Sprintf("%d to %d", b.Least, b.Most)
	if b.Of != "" {
		text += " " + b.Of
	}
	if b.Unset {
		text += ", or 0"
	}
	return text
}

// Bounds are those that readers hold keys to, by TYPE.FIELD; TestBounds asks the readers.
var Bounds = map[string]Bound{
	"Agent.Poll":           {60, 86400, "", true},
	"Budget.Corrections":   {1, 20, "", false},
	"Budget.Per":           {60, 86400, "", false},
	"Command.Argv":         {1, 64 << 10, "bytes together, a NUL after each", false},
	"Command.Timeout":      {1, 86400, "", false},
	"Confirm.Within":       {10, 86400, "", false},
	"Exec.Data":            {1, 256 << 10, "bytes", false},
	"Exec.Revert":          {1, 256 << 10, "bytes", true},
	"Exec.Timeout":         {1, 1 << 31, "", true},
	"Exec.RerunInterval":   {-1, 1 << 33, "", false},
	"Exec.RetryInterval":   {-1, 1 << 33, "", false},
	"Exec.MemoryMax":       {4 << 20, 1 << 50, "", true},
	"Exec.CPUQuota":        {1, 1_000_000, "", true},
	"Exec.TasksMax":        {1, 1 << 22, "", true},
	"File.Content":         {0, 256 << 10, "bytes", false},
	"HealthCheck.Timeout":  {1, 600, "", false},
	"HealthCheck.Interval": {1, 3600, "", false},
	"HealthCheck.Retries":  {0, 1000, "", false},
	"HealthCheck.Soak":     {0, 86400, "", false},
	"Report.Seq":           {1, MaxSeq, "", false},
	"Reporting.Interval":   {1, 86400, "", false},
	"Service.Directories":  {1, 64, "rows", false},
	"Slot.Max":             {1, 10_000, "", false},
	"Swap.Priority":        {0, 32767, "", false},
	"Sysctl.Value":         {0, 64 << 10, "bytes", false},
	"Sysfs.Value":          {0, 4 << 10, "bytes", false},
}

// bound is the text of a key's bounds.
func bound(key string, t reflect.Type) string {
	if b, ok := Bounds[key]; ok {
		return b.String()
	}
	if t.Kind() == reflect.Uint64 {
		return "0 to 2^53-1" // see docs/formats.md
	}
	return ""
}

// TestLaterKeysAreClassified: readers leave out what they do not know, so the author of a
// new key says whether they may. None goes away: an older reader, or writer, has it still.
func TestLaterKeysAreClassified(t *testing.T) {
	var have []string
	for _, d := range documents {
		have = addKeys(have, d.name+" ", reflect.TypeOf(d.doc).Elem())
	}
	if update {
		if err := golden.WriteNew(keysFile, []byte(strings.Join(have, "\n")+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(keysFile)
	if err != nil {
		t.Fatal(err)
	}
	frozen := strings.Split(strings.TrimSuffix(string(golden), "\n"), "\n")
	laterKeys := laterKeys(comments(t))
	for _, wrong := range misclassified(have, frozen, laterKeys, Features()) {
		t.Error(wrong)
	}
	keepLater(t, laterKeys)
	later := append(slices.Clone(have), "overlay items.sysctl[].onlyIf")
	for class, want := range map[string]int{"": 1, "sysctl-only-if": 0, "no-feature": 1, mayBeLeftOut: 0} {
		classes := maps.Clone(laterKeys)
		if class != "" {
			classes["overlay items.sysctl[].onlyIf"] = laterKey{"0.10.0", class}
		}
		if got := misclassified(later, frozen, classes, append(Features(), "sysctl-only-if")); len(got) != want {
			t.Errorf("a further key that is classified as %q: %q", class, got)
		}
	}
	if got := misclassified(have[1:], frozen, laterKeys, Features()); len(got) != 1 {
		t.Errorf("a key that went away: %q", got)
	}
}

// misclassified says what is wrong with the key paths that a release has.
func misclassified(have, frozen []string, classes map[string]laterKey, features []string) (wrong []string) {
	for _, key := range have {
		class, isLater := classes[key]
		switch isFrozen := slices.Contains(frozen, key); {
		case isFrozen && isLater:
			wrong = append(wrong, key+" is of 0.9.0, and its comment says that it came later")
		case !isFrozen && !isLater:
			wrong = append(wrong, key+" is not of 0.9.0: its comment is to begin with since RELEASE: where it "+mayBeLeftOut+", else with since RELEASE with FEATURE:")
		case !isFrozen && class.class != mayBeLeftOut && !slices.Contains(features, class.class):
			wrong = append(wrong, key+": "+class.class+" is not a feature")
		}
	}
	for _, key := range frozen {
		if !slices.Contains(have, key) {
			wrong = append(wrong, key+" is gone")
		}
	}
	return wrong
}

// keepLater wants each later key to stay as it was first written. With CAISSON_UPDATE it adds those
// that are new.
func keepLater(t *testing.T, later map[string]laterKey) {
	t.Helper()
	data, err := os.ReadFile(laterFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for key, of := range later {
		line := fmt.Sprintf("%s: %s, %s", key, of.since, of.class)
		i, there := slices.BinarySearch(lines, line)
		known := slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+": ") })
		if !there && update && !known {
			lines = slices.Insert(lines, i, line)
		} else if !there && !known {
			t.Errorf("%s is not in %s: CAISSON_UPDATE=1 go test ./spec adds it", line, laterFile)
		}
	}
	for _, line := range lines {
		key, _, _ := strings.Cut(line, ": ")
		if of, ok := later[key]; !ok || line != fmt.Sprintf("%s: %s, %s", key, of.since, of.class) {
			t.Errorf("%s has %s, and its field says otherwise, or is gone", laterFile, line)
		}
	}
	if update {
		if err := os.WriteFile(laterFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// addKeys adds the key paths of a struct, as DecodeKnown writes those that it leaves out; a
// map's keys are "*".
func addKeys(keys []string, path string, t reflect.Type) []string {
	for f := range visible(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		keys = append(keys, path+name)
		if at, inner := pathTo(path+name, f.Type); inner != nil {
			keys = addKeys(keys, at+".", inner)
		}
	}
	return keys
}

// pathTo is the path of the struct that a key leads to, nil where it leads to none.
func pathTo(at string, of reflect.Type) (string, reflect.Type) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		switch of.Kind() {
		case reflect.Slice:
			at += "[]"
		case reflect.Map:
			at += ".*"
		}
		of = of.Elem()
	}
	return at, structOf(of)
}

// ofNumbers are the documents whose times are numbers. The others have RFC 3339, but for
// what they share with those.
var ofNumbers = []string{"fleet-index", "fleet-shard", "rollout-plan"}

// TestTimes holds docs/formats.md: which of the two forms the times of a document have, and
// that a number says what it counts.
func TestTimes(t *testing.T) {
	notes := comments(t)
	for _, d := range documents {
		numbers, texts := 0, 0
		for key, f := range fieldsBelow(reflect.TypeOf(d.doc).Elem(), map[string]reflect.StructField{}) {
			note := said(notes[key], f)
			switch typeWord(f.Type) {
			case "number":
				if strings.Contains(note, "since 1970") && key != "Pause.Until" {
					numbers++
				}
				if note == "" && !slices.Contains([]string{"Epoch", "Generation"}, f.Name) {
					t.Errorf("%s does not say what it counts", key)
				}
			case "RFC 3339", "list of RFC 3339":
				texts++
			case "text":
				if strings.Contains(note, "RFC 3339") {
					texts++
				}
			}
		}
		if slices.Contains(ofNumbers, d.name) && texts > 0 || !slices.Contains(ofNumbers, d.name) && numbers > 0 {
			t.Errorf("%s has %d times that are numbers and %d that are text", d.name, numbers, texts)
		}
	}
}

// fieldsBelow adds the fields of a struct and of all that it holds, by TYPE.FIELD.
func fieldsBelow(s reflect.Type, into map[string]reflect.StructField) map[string]reflect.StructField {
	for f := range visible(s) {
		key := owner(s, f) + "." + f.Name
		if _, seen := into[key]; seen {
			continue
		}
		into[key] = f
		if inner := structOf(f.Type); inner != nil {
			fieldsBelow(inner, into)
		}
	}
	return into
}

// TestUpdateKeepsGoldens: -update leaves what is there.
func TestUpdateKeepsGoldens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "layer.json")
	for _, text := range []string{"of 0.9.0", "of today"} {
		if err := golden.WriteNew(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "of 0.9.0" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestReservedKeys: a reader of today leaves out what a later release writes under a
// reserved key.
func TestReservedKeys(t *testing.T) {
	for _, r := range reserved {
		for _, d := range documents {
			if d.name != r.document {
				continue
			}
			data, err := os.ReadFile(filepath.Join("testdata/golden", d.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			later := append(bytes.TrimSuffix(data, []byte("}")), []byte(`,"`+r.key+`":{"later":1}}`)...)
			doc := reflect.New(reflect.TypeOf(d.doc).Elem()).Interface()
			if unknown, err := DecodeKnown(later, doc); err != nil || len(unknown) != 1 || unknown[0] != r.key {
				t.Errorf("%s.%s: unknown %q, %v", r.document, r.key, unknown, err)
			}
		}
	}
}

// parts are the types whose table has a page of its own, with those of the types below it: a
// page is short enough to be read to its end.
var parts = map[reflect.Type]string{
	reflect.TypeFor[Items]():       "overlay-items",
	reflect.TypeFor[Maintenance](): "overlay-maintenance",
}

// TestFormatPages holds docs/formats to the types, a page a document and a part. -update
// writes them.
func TestFormatPages(t *testing.T) {
	notes := comments(t)
	later := laterKeys(notes)
	for n := range documents {
		for name, want := range pages(n, notes, later) {
			file := filepath.Join("../docs/formats", name+".md")
			if update {
				if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != want {
				t.Errorf("%s is not what the types say (%v): run CAISSON_UPDATE=1 go test ./spec", file, err)
			}
		}
	}
}

// pages are those of a document, by name: a table for it and for each type that it holds.
func pages(n int, notes map[string]string, laterKeys map[string]laterKey) map[string]string {
	d := documents[n]
	top := reflect.TypeOf(d.doc).Elem()
	text := map[string]string{}
	on := map[reflect.Type]string{top: d.name}          // the page with the type's table
	paths := map[reflect.Type]string{top: d.name + " "} // where a type is met first
	for queue := []reflect.Type{top}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		here := on[s]
		var b strings.Builder
		if text[here] == "" {
			fmt.Fprintf(&b, "# %s\n\nMade from the types: `CAISSON_UPDATE=1 go test ./spec`.\n\n%s\n", s.Name(), doctext.Wrap(intro(n, here), doctext.Width))
		} else {
			fmt.Fprintf(&b, "\n## %s\n", s.Name())
		}
		b.WriteString("\n| key | type | bounds | since | is |\n|---|---|---|---|---|\n")
		for f := range visible(s) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			at, inner := pathTo(paths[s]+name, f.Type)
			if inner != nil && on[inner] == "" {
				on[inner], paths[inner] = cmp.Or(parts[inner], here), at+"."
				queue = append(queue, inner)
			}
			since := cmp.Or(laterKeys[paths[s]+name].since, "0.9.0")
			if options == "" {
				name += ", always"
			}
			typ := typeWord(f.Type)
			if inner != nil && on[inner] != here {
				typ = strings.TrimSuffix(typ, inner.Name()) + fmt.Sprintf("[%s](%s.md#%s)", inner.Name(), on[inner], strings.ToLower(inner.Name()))
			}
			key := owner(s, f) + "." + f.Name
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, typ, bound(key, f.Type), since, strings.ReplaceAll(said(notes[key], f), "|", "\\|"))
		}
		text[here] += b.String()
	}
	return text
}

// said is what a page says of a field: what authors are told where that is all there is to say.
func said(note string, f reflect.StructField) string {
	return cmp.Or(sinceNote.ReplaceAllString(note, ""), f.Tag.Get("doc"))
}

// intro is the prose of a page of a document.
func intro(n int, page string) string {
	d := documents[n]
	if page != d.name {
		return fmt.Sprintf("A part of the [%s](%s.md), whose page says what a reader does with a key of a later release.", d.name, d.name)
	}
	text := fmt.Sprintf("A key of a later release: a reader %s%s.", d.older, d.why)
	for _, r := range reserved {
		if r.document == d.name {
			text += fmt.Sprintf("\n\nReserved: `%s`, %s. Readers of today leave it out.", r.key, r.means)
		}
	}
	return text
}

// owner is the name of the struct that has a field, which s may embed.
func owner(s reflect.Type, f reflect.StructField) string {
	for _, i := range f.Index[:len(f.Index)-1] {
		s = s.Field(i).Type
	}
	return s.Name()
}

func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	return t
}

func typeWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeWord(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "base64"
		}
		return "list of " + typeWord(t.Elem())
	case reflect.Map:
		return "map to " + typeWord(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return "RFC 3339"
		}
		return t.Name()
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Bool:
		return "true"
	}
	return "text"
}

// comments returns the comments behind the fields of this package, by TYPE.FIELD.
func comments(t *testing.T) map[string]string {
	notes := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := s.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					text := strings.Join(strings.Fields(f.Comment.Text()+f.Doc.Text()), " ")
					for _, id := range f.Names {
						notes[s.Name.Name+"."+id.Name] = text
					}
				}
			}
			return true
		})
	}
	return notes
}

// TestEachFormatIsListed: docs/formats.md leads to each page of docs/formats.
func TestEachFormatIsListed(t *testing.T) {
	list, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/formats/*.md")
	if err != nil || len(pages) < len(documents) {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, name := range pages {
		if link := "(formats/" + filepath.Base(name) + ")"; !bytes.Contains(list, []byte(link)) {
			t.Errorf("docs/formats.md has no link %s", link)
		}
	}
}
