"""A site in Django: the same views by WSGI and by ASGI."""

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY="of a test",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["main.test"],
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    DATA_UPLOAD_MAX_MEMORY_SIZE=None,
)


def home(request):
    return JsonResponse({"absolute": request.build_absolute_uri(), "client": request.META["REMOTE_ADDR"]})


def upload(request):
    return HttpResponse(str(len(request.body)))


def rows(request):
    return StreamingHttpResponse((f"row {number}\n" for number in range(1000)), content_type="text/csv")


def error(request):
    raise RuntimeError("the secret word is xyzzy")


def of(root):
    return [path(f"{root}/", home), path(f"{root}/upload", upload), path(f"{root}/rows", rows), path(f"{root}/error", error)]


# Paths are whole paths, also below a service's own.
urlpatterns = of("wsgi") + of("asgi")
wsgi = get_wsgi_application()
asgi = get_asgi_application()
