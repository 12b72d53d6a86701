package realkafka_test

import (
	"os"
	"testing"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

func TestMain(m *testing.M) { os.Exit(realkafka.Main(m)) }
