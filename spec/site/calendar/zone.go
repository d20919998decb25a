// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// zones is the tz database as Go distributes it: a test compares the copy with the
// toolchain's and says how to renew it. time.LoadLocation asks the machine
// first, and two machines with two databases would publish two calendars.
//
//go:embed zoneinfo.zip
var zones []byte

var database = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zones), int64(len(zones)))
})

// Zone returns the time zone of an IANA name, such as Europe/Berlin. "UTC" is one;
// "Local" and an empty name are not.
func Zone(name string) (*time.Location, error) {
	db, err := database()
	if err != nil {
		return nil, fmt.Errorf("tz database: %w", err)
	}
	f, err := db.Open(name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q", name)
	}
	defer f.Close() // only read
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	return time.LoadLocationFromTZData(name, data)
}

// ZoneNames lists what Zone knows, for suggestions.
func ZoneNames() []string {
	db, err := database()
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range db.File {
		if !f.FileInfo().IsDir() {
			out = append(out, f.Name)
		}
	}
	return out
}
