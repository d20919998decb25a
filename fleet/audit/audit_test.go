// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func log(n int) (rows []Row) {
	var before Row
	for i := range n {
		before = New(time.Unix(int64(1000+i), 5), "eve", Accept, "n1", strings.Repeat("k", i)).Chain(before)
		rows = append(rows, before)
	}
	return rows
}

// TestCheck: a chain holds; each change of each row breaks it, there or at the next one.
func TestCheck(t *testing.T) {
	rows := log(6)
	if err := Check(Row{}, rows); err != nil {
		t.Error(err)
	}
	if err := Check(rows[2], rows[3:]); err != nil {
		t.Errorf("from the middle: %v", err)
	}
	for name, change := range map[string]func(r []Row) []Row{
		"who":       func(r []Row) []Row { r[2].Who = "kim"; return r },
		"when":      func(r []Row) []Row { r[2].At = r[2].At.Add(time.Second); return r },
		"act":       func(r []Row) []Row { r[2].Act = Release; return r },
		"about":     func(r []Row) []Row { r[2].About = "n2"; return r },
		"said":      func(r []Row) []Row { r[2].Said += "x"; return r },
		"sum":       func(r []Row) []Row { r[2].Sum = r[1].Sum; return r },
		"made anew": func(r []Row) []Row { r[2].Who = "kim"; r[2].Sum = r[2].sum(); return r },
		"taken out": func(r []Row) []Row { return slices.Delete(r, 2, 3) },
		"the first": func(r []Row) []Row { return r[1:] },
		"two moved": func(r []Row) []Row { r[2], r[3] = r[3], r[2]; return r },
		"numbered anew": func(r []Row) []Row {
			r = slices.Delete(r, 2, 3)
			for i := range r {
				r[i].Seq = int64(i + 1)
			}
			return r
		},
	} {
		if err := Check(Row{}, change(log(6))); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSame: an export of before shows a chain that was made anew, and one whose end was cut.
func TestSame(t *testing.T) {
	export := log(4)
	if err := Same(export, log(6)); err != nil {
		t.Error(err)
	}
	anew := log(6)
	anew[1].Who = "kim"
	var before Row
	for i := range anew {
		before = anew[i].Chain(before)
		anew[i] = before
	}
	if err := Check(Row{}, anew); err != nil {
		t.Fatal(err)
	}
	for name, now := range map[string][]Row{"made anew": anew, "cut": log(3), "empty": nil} {
		if err := Same(export, now); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRead: rows come back as they were written, whatever a text holds.
func TestRead(t *testing.T) {
	var text []byte
	rows := []Row{New(time.Now(), "e\x00v\xff<>&\u2028\n", Login, strings.Repeat("ä", 400), "\"\\").Chain(Row{})}
	rows = append(rows, New(time.Now(), "", Denied, "", "").Chain(rows[0]))
	for _, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, line...), '\n')
	}
	got, err := Read(text)
	if err != nil || !slices.Equal(got, rows) || Check(Row{}, got) != nil {
		t.Errorf("%+v\n%+v\n%v", got, rows, err)
	}
	if a := rows[0].About; len(a) > longest+3 || !utf8.ValidString(a) {
		t.Errorf("%q", a)
	}
	if _, err := Read([]byte("{}\nno\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"seq":1,"at":"2026-11-28T00:00:00Z"}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if rows, err := Read(text); err == nil {
			_ = Check(Row{}, rows) // it ends
		}
	})
}

// TestWholeLog: a log is read to its end, and one that has more rows than are read is an error.
func TestWholeLog(t *testing.T) {
	var log []Row
	for range 12 {
		var before Row
		if len(log) > 0 {
			before = log[len(log)-1]
		}
		log = append(log, New(time.Unix(7, 0), "eve", Login, "id2", "ops").Chain(before))
	}
	after := func(seq int64) ([]Row, error) { return log[seq:min(int(seq)+5, len(log))], nil }
	if rows, err := Whole(12, after); err != nil || len(rows) != 12 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if rows, err := Whole(11, after); rows != nil || err == nil || !strings.Contains(err.Error(), "more than 11 rows") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	log[11].Who = "kim"
	if rows, err := Whole(12, after); rows != nil || err == nil || !strings.Contains(err.Error(), "row 12 is not what its sum is of") {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	log = nil
	if rows, err := Whole(12, after); rows == nil || len(rows) > 0 || err != nil {
		t.Errorf("an empty log: %v, %v", rows, err)
	}
}
