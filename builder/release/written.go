// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// written adds to what an archive does not have where the site asks for it.
func written(s *site.Site, err error) error {
	var at report.Pos
	var unknown *apt.Unknown
	var none *apt.NoSuite
	switch {
	case errors.As(err, &unknown):
		at = s.PackageAt(unknown.Package, unknown.Version)
	case errors.As(err, &none):
		at = s.SuiteAt(none.Suite)
	}
	if at == (report.Pos{}) {
		return err
	}
	return fmt.Errorf("%s: %w", at, err)
}
